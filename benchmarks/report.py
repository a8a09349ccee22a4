"""Writes what was measured into docs/: tables, plots, claims in words.

  python -m benchmarks.report

Every file of docs/ may hold <!-- benchmarks: NAME --> ... <!-- end -->; what
stands between is replaced by the report NAME, a file of benchmarks/reports, on
the newest rows of benchmarks/results/NAME.jsonl. Plots go to docs/plots.
"""

import importlib
import pathlib
import re

from absl import flags

from launch import command

DOCS = flags.DEFINE_string('docs', '', 'Folder to write; empty: docs.')
ROWS = flags.DEFINE_string(
  'rows', '', 'Folder of rows; empty: benchmarks/results.'
)
MARKED = re.compile(
  r'(<!-- benchmarks: (\w+) -->\n).*?(<!-- end -->)', re.DOTALL
)


def main(argv):
  del argv
  from benchmarks import rows

  docs = pathlib.Path(DOCS.value or pathlib.Path(__file__).parents[1] / 'docs')
  for path in write(docs, ROWS.value or rows.RESULTS):
    print(path)


def write(docs, folder):
  """Renews the marked parts of docs/*.md. Returns the paths it wrote.

  Raises:
    InputError: no file holds a mark, or one names no report.
  """
  from rnn_jax import errors

  written = []
  for path in sorted(pathlib.Path(docs).glob('*.md')):
    old = path.read_text()
    new = MARKED.sub(lambda match: _renewed(match, docs, folder), old)
    if MARKED.search(old):
      path.write_text(new)
      written.append(path)
  if not written:
    raise errors.InputError(f'--docs={docs}: no file holds a mark to fill')
  return written


def _renewed(match, docs, folder):
  begin, name, end = match.groups()
  return f'{begin}\n{section(name, docs, folder)}\n\n{end}'


def section(name, docs, folder):
  """The report of that name as Markdown; its plots are drawn.

  Raises:
    InputError: there is no such report.
  """
  from benchmarks import plots
  from benchmarks import rows
  from benchmarks import tables
  from rnn_jax import errors

  if not (pathlib.Path(__file__).parent / 'reports' / f'{name}.py').exists():
    raise errors.InputError(f'<!-- benchmarks: {name} -->: no such report')
  report = importlib.import_module(f'benchmarks.reports.{name}')
  read = getattr(report, 'cases', list)(rows.read(name, folder))
  found = tables.machines(read)
  if not found:
    return f'Not measured yet: `python -m benchmarks.run --suite={name}`.'
  return '\n\n'.join(
    report.render(rows_of, plots.Plots(docs, f'{name}_{platform}'))
    for platform, rows_of in found.items()
  )


if __name__ == '__main__':
  command.run(main)
