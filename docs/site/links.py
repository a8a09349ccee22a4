"""Where the links of Markdown files lead on the site.

A link to a file of docs/ stays; one to a module is to its page of the API
reference, and one to any other file of the repository to a page that shows it.
"""

import pathlib
import re
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / 'docs'
LINK = re.compile(r'(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))')
SHOWN = {'.py': 'python', '.toml': 'toml', '.md': 'markdown', '.sh': 'bash'}
HOME = {'README.md': 'start', 'CHANGELOG.md': 'changelog'}  # generated pages


def home(write: Callable[[str, str], None]) -> None:
  """Writes the pages of the repository's root."""
  for name, page in HOME.items():
    text = (ROOT / name).read_text(encoding='utf-8')
    # Its drawing is for programs that draw such text.
    text = text.replace('```mermaid', '```text')
    write(page, relocated(text, ROOT, write))


def relocated(
  text: str, folder: pathlib.Path, write: Callable[[str, str], None]
) -> str:
  """Returns the text of a page with links that the site has.

  Args:
    text: Markdown, or a notebook.
    folder: where the page's links begin.
    write: called with the name and text of each page that shows a file.
  """

  def place(match):
    target, anchor = match.groups()
    path = (folder / target).resolve()
    if not path.is_relative_to(ROOT) or not path.exists():
      return match.group()  # Sphinx says that it is missing
    return _page_of(path, write) + (anchor or '')

  return LINK.sub(place, text)


def _page_of(path, write):
  name = path.relative_to(ROOT)
  if str(name) in HOME:
    return f'/generated/{HOME[str(name)]}.md'
  if path.is_relative_to(DOCS) and path.is_file():
    return f'/{path.relative_to(DOCS)}'
  module = _module(name)
  if (DOCS / 'generated' / 'api' / f'{module}.md').exists():
    return f'/generated/api/{module}.md'
  shown = f'files/{name}'
  write(shown, _shown(path, name))
  return f'/generated/{shown}.md'


def _module(name):
  parts = name.with_suffix('').parts
  return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def _shown(path, name):
  head = f'---\norphan: true\n---\n\n# `{name}`\n\n'
  if path.is_dir():
    found = sorted(one for one in path.iterdir() if one.name[0] not in '._')
    return head + ''.join(f'* `{one.name}`\n' for one in found)
  language = SHOWN.get(path.suffix, 'text')
  text = path.read_text(encoding='utf-8').rstrip()
  fence = '`' * (3 + text.count('```'))
  return f'{head}{fence}{language}\n{text}\n{fence}\n'
