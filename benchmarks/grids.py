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

from benchmarks.harness import tables as harness_tables
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import records
from rnn_jax.experiments import report
from rnn_jax.experiments import summary
from rnn_jax.experiments import tables
from rnn_jax.system import files
from rnn_jax.system import shipped

FOLDER = 'experiments'
ALL = 'all'
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
  """Returns the tables and figures of a grid, or of ALL of them, for a page.

  Raises:
    InputError: there is no such report.
  """
  if name == ALL:
    return overview(docs)
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


def overview(docs: pathlib.Path) -> str:
  """Returns the table of all grids: their runs and the hours of training."""
  lines, total, hours = [], 0, 0.0
  for folder in _folders(docs):
    rows = [*records.read(folder).values()]
    spent = sum(_trained(row) for row in rows) / 3600
    total, hours = total + len(rows), hours + spent
    title = _kept(folder)['title']
    lines.append(
      [f'[{title}]({FOLDER}/{folder.name}/report.md)', f'`{folder.name}`']
      + [f'{len(rows):,}', f'{spent:.1f}' if spent else '-']
    )
  lines.append(['all', '', f'{total:,}', f'{hours:.1f}'])
  return harness_tables.table('report | grid | runs | hours of training', lines)


def _trained(row):
  """Seconds of a run's training, with what ran beside it, if they are known."""
  curve = row.get('curve') or [[0, None]]
  return row.get('seconds') or curve[-1][1] or 0.0


def _folders(docs):
  return sorted(path.parent for path in docs.glob(f'{FOLDER}/*/{records.NAME}'))


def _grid(folder):
  path = shipped.ROOT / 'configs' / 'experiments' / f'{folder.name}.py'
  return grid_lib.load(str(path))


def _kept(folder):
  path = folder / 'report.json'
  return files.read_json(path) if path.exists() else {}
