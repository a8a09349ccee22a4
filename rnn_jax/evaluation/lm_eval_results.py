"""Results of lm-evaluation-harness: a table of scores, and what files have."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from lm_eval import utils

from rnn_jax import tables
from rnn_jax.system import files

KEPT = (
  'results',
  'groups',
  'group_subtasks',
  'configs',
  'versions',
  'n-shot',
  'n-samples',
  'higher_is_better',
)


def table(results: dict[str, Any]) -> str:
  """Returns a table of the scores of each task and group, with their errors."""
  rows = []
  for task, scores in results['results'].items():
    for key, value in scores.items():
      name, comma, kind = key.partition(',')
      if not comma or name.endswith('_stderr'):
        continue
      metric = name if kind == 'none' else f'{name} ({kind})'
      error = scores.get(f'{name}_stderr,{kind}')
      rows.append([task, metric, *map(_number, (value, error))])
  return '\n'.join(tables.aligned(('task', 'metric', 'value', 'error'), rows))


def _number(value):
  if value is None:
    return '-'
  return f'{value:.4f}' if isinstance(value, float) else str(value)


def write(
  results: dict[str, Any], workdir: str | os.PathLike, with_samples: bool
) -> dict[str, Any]:
  """Writes the results into WORKDIR/evaluation/lm_eval.

  Args:
    results: of lm_eval.evaluate.
    workdir: the run's folder.
    with_samples: whether each task gets a file of its rows: documents,
      requests, answers, scores.

  Returns:
    What results.json has: all but the samples, of JSON's types.
  """
  folder = pathlib.Path(workdir) / 'evaluation' / 'lm_eval'
  folder.mkdir(parents=True, exist_ok=True)
  kept = _plain({key: results[key] for key in KEPT if key in results})
  files.write_whole(folder / 'results.json', files.to_json(kept, indent=2))
  if with_samples:
    for task, rows in _plain(results['samples']).items():
      lines = ''.join(f'{files.to_json(row)}\n' for row in rows)
      files.write_whole(folder / f'samples_{task}.jsonl', lines)
  return kept


def _plain(value: Any) -> Any:
  if isinstance(value, dict):
    return {str(key): _plain(each) for key, each in value.items()}
  if isinstance(value, Sequence) and not isinstance(value, str):
    return [*map(_plain, value)]
  if value is None or isinstance(value, (str, bool, int, float)):
    return value
  return utils.handle_non_serializable(value)
