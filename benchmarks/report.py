"""Writes what was measured into docs/: tables, plots, claims in words.

  python -m benchmarks.report [--check]

README.md and every file of docs/ may hold
<!-- benchmarks: NAME --> ... <!-- end -->: what is between them is replaced by
the report of the suite NAME on the newest rows of its file in results/.
Plots go to docs/plots. <!-- experiments: NAME --> is that of a grid, see
grids.py. Numbers within sentences are those of docs/figures.toml, see
figures.py.

--check writes nothing. It fails if a page isn't what the rows say, a figure has
no place on its page, no row, one of another config or a noisy one, or a page
says outside of these marks that a claim is confirmed.
"""

import os
import pathlib
import re
import types

from absl import flags

from benchmarks import figures
from launch import command

DOCS = flags.DEFINE_string('docs', '', 'Folder to write; empty: docs.')
ROWS = flags.DEFINE_string(
  'rows', '', 'Folder of rows; empty: benchmarks/results.'
)
CHECK = flags.DEFINE_bool('check', False, 'Compare the pages with the rows.')
MARKED = re.compile(
  r'(<!-- (benchmarks|experiments): (\w+) -->\n).*?(<!-- end -->)', re.DOTALL
)
VERDICT = re.compile(r'\*\*(confirmed|corrected)\*\*')


def main(argv: list[str]) -> None:
  del argv
  from benchmarks.harness import rows
  from rnn_jax import errors

  docs = pathlib.Path(DOCS.value or pathlib.Path(__file__).parents[1] / 'docs')
  folder = pathlib.Path(ROWS.value or rows.RESULTS)
  if not CHECK.value:
    for path in write(docs, folder):
      print(path)
  elif lines := check(docs, folder):
    raise errors.InputError('\n'.join(lines))


def pages(docs: pathlib.Path) -> list[pathlib.Path]:
  """README.md beside `docs`, and its files."""
  readme = docs.parent / 'README.md'
  return [readme] * readme.exists() + sorted(docs.glob('*.md'))


def write(
  docs: str | os.PathLike, folder: str | os.PathLike
) -> list[pathlib.Path]:
  """Renews the marked parts and the figures. Returns the paths it wrote.

  Raises:
    InputError: nothing is marked, or what is names no suite or no row.
  """
  from benchmarks import grids
  from rnn_jax import errors

  docs = pathlib.Path(docs)
  written = grids.write(docs)
  source = figures.Source(docs, pathlib.Path(folder))
  places = figures.load(docs)
  for path in pages(docs):
    old, own = path.read_text(), places.get(_name(path, docs), [])
    if own or MARKED.search(old):
      path.write_text(renewed(old, own, source))
      written.append(path)
  if not written:
    raise errors.InputError(f'--docs={docs}: no file holds a mark to fill')
  return written


def renewed(
  text: str,
  places: list[figures.Place],
  source: figures.Source,
  draw: bool = True,
) -> str:
  """A page with its marked parts and its figures renewed."""

  from benchmarks import grids

  def part(match):
    begin, kind, name, end = match.groups()
    if kind == grids.FOLDER:
      return f'{begin}\n{grids.section(name, source.docs)}\n\n{end}'
    return f'{begin}\n{section(name, source, draw)}\n\n{end}'

  return figures.fill(MARKED.sub(part, text), places, source)


def check(docs: pathlib.Path, folder: pathlib.Path) -> list[str]:
  """What is wrong with the pages, a line each."""
  from benchmarks import grids

  lines = [*grids.problems(docs)]
  places = figures.load(docs)
  source = figures.Source(docs, folder)
  for path in pages(docs):
    text, own = path.read_text(), places.get(_name(path, docs), [])
    wrong = [*figures.problems(own, source)]
    if renewed(text, own, source, draw=False) != text:
      wrong.append('not what the rows say: run python -m benchmarks.report')
    wrong += [
      f'{match[0]!r} without a mark: a verdict comes from rows'
      for match in VERDICT.finditer(MARKED.sub('', text))
    ]
    lines += [f'{path.name}: {line}' for line in wrong]
  return lines


def _name(page, docs):
  return page.relative_to(docs.parent).as_posix()


def section(name: str, source: figures.Source, draw: bool = True) -> str:
  """The report of that suite as Markdown; its plots are drawn, if at all.

  Raises:
    InputError: no such suite.
  """
  from benchmarks.harness import case

  selected = source.rows(name)
  if not selected:
    return f'Not measured yet: `python -m benchmarks.run --suite={name}`.'
  suite = case.load(name)
  return '\n\n'.join(
    text
    for platform, rows in selected.items()
    if (text := of_rows(suite, rows, source.docs, f'{name}_{platform}', draw))
  )


def of_rows(
  suite: types.ModuleType,
  rows: dict[str, dict],
  docs: str | os.PathLike,
  prefix: str,
  draw: bool = True,
) -> str:
  """As `section`, of some rows by case; `prefix` begins its plots' names."""
  from benchmarks.harness import plots
  from benchmarks.harness import tables

  provenance = getattr(suite, 'provenance', tables.provenance)
  parts = [
    provenance(rows),
    *suite.report(rows, plots.Plots(docs, prefix, draw)),
  ]
  parts += tables.failures(rows, '\n'.join(parts))
  return '\n\n'.join(filter(None, parts))


if __name__ == '__main__':
  command.run(main)
