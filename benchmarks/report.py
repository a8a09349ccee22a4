"""Writes what was measured into docs/: tables, plots, claims in words.

  python -m benchmarks.report

Every file of docs/ may hold <!-- benchmarks: NAME --> ... <!-- end -->; what is
between them is replaced by the report of the suite NAME on the newest rows of
benchmarks/results/NAME.jsonl. Plots go to docs/plots.
"""

import os
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


def main(argv: list[str]) -> None:
  del argv
  from benchmarks.harness import rows

  docs = pathlib.Path(DOCS.value or pathlib.Path(__file__).parents[1] / 'docs')
  for path in write(docs, ROWS.value or rows.RESULTS):
    print(path)


def write(
  docs: str | os.PathLike, folder: str | os.PathLike
) -> list[pathlib.Path]:
  """Renews the marked parts of docs/*.md. Returns the paths it wrote.

  Raises:
    InputError: no file holds a mark, or one names no suite.
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


def section(
  name: str, docs: str | os.PathLike, folder: str | os.PathLike
) -> str:
  """The report of that suite as Markdown; its plots are drawn.

  Raises:
    InputError: no such suite.
  """
  from benchmarks.harness import case
  from benchmarks.harness import plots
  from benchmarks.harness import rows
  from benchmarks.harness import tables

  suite = case.load(name, '<!-- benchmarks: NAME -->, NAME')
  select = getattr(suite, 'select', tables.newest)
  selected = select(rows.read(name, folder))
  if not selected:
    return f'Not measured yet: `python -m benchmarks.run --suite={name}`.'
  return '\n\n'.join(
    part
    for platform, chosen in selected.items()
    for part in suite.report(chosen, plots.Plots(docs, f'{name}_{platform}'))
    if part
  )


if __name__ == '__main__':
  command.run(main)
