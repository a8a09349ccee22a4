"""Reports of grids of rnn_jax/experiments whose rows are in docs/experiments.

  python -m benchmarks.report

writes docs/experiments/NAME/report.md, report.json and figures from runs.jsonl,
for the grid configs/experiments/NAME.py. Add to the rows by
`python -m launch.experiments --grid=NAME --workdir=DIR`, and copy
DIR/runs.jsonl there.
"""

import json
import pathlib
from collections.abc import Iterator

from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import records
from rnn_jax.experiments import report
from rnn_jax.experiments import summary
from rnn_jax.experiments import tables
from rnn_jax.system import files
from rnn_jax.system import shipped

FOLDER = 'experiments'
SHOWN = 'states.png', 'columns.png', 'scores.png'  # on a page, of these


def write(docs: pathlib.Path) -> list[pathlib.Path]:
  """Renews the reports; returns their paths."""
  for folder in _folders(docs):
    report.write(_grid(folder), records.read(folder), folder)
  return [folder / 'report.md' for folder in _folders(docs)]


def problems(docs: pathlib.Path) -> Iterator[str]:
  """Yields the reports that aren't what their rows say, a line each."""
  for folder in _folders(docs):
    made = summary.summarize(_grid(folder), records.read(folder))
    if json.loads(files.to_json(made)) != _kept(folder):
      yield (
        f'{FOLDER}/{folder.name}: not what the rows say: run python -m '
        'benchmarks.report'
      )


def section(name: str, docs: pathlib.Path) -> str:
  """Returns the tables and figures of a grid, for a page.

  Raises:
    InputError: there is no such report.
  """
  folder = docs / FOLDER / name
  kept = _kept(folder)
  shown = [name for name in SHOWN if (folder / name).exists()]
  parts = [
    report.provenance(kept),
    *tables.results(kept),
    *(f'![{kept["title"]}]({FOLDER}/{name}/{file})' for file in shown),
    f'[Report]({FOLDER}/{name}/report.md), with what each run changes.',
  ]
  return '\n\n'.join(parts)


def _folders(docs):
  return sorted(path.parent for path in docs.glob(f'{FOLDER}/*/{records.NAME}'))


def _grid(folder):
  path = shipped.ROOT / 'configs' / 'experiments' / f'{folder.name}.py'
  return grid_lib.load(str(path))


def _kept(folder):
  path = folder / 'report.json'
  return files.read_json(path) if path.exists() else {}
