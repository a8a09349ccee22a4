"""What the guides have in them: blocks of code, and commands.

A guide is README.md or a Markdown file of docs/ or docs/start/. A block that
can't run has a comment above it that gives the reason:

    <!-- not run: needs a GPU -->
    ```python
"""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tests.support import tiny

PAGES = {
  str(path.relative_to(tiny.ROOT)): path
  for path in (
    tiny.ROOT / 'README.md',
    *sorted(tiny.ROOT.glob('docs/*.md')),
    *sorted(tiny.ROOT.glob('docs/start/*.md')),
  )
}
FENCED = re.compile(
  r'^(?:<!-- not run: *([^>]*?) *-->\n+)?^```(\S*)\n(.*?)^```$', re.M | re.S
)
NOT_RUN = re.compile(r'^<!-- not run', re.M)
SHELL = 'sh', 'bash'
INLINE = re.compile(r'`((?:python -m launch\.|rnn-jax )[^`]*)`')
COMMAND = re.compile(r'(?:python3? -m launch\.|\brnn-jax )(\w+)(.*)')
OPERATORS = ';|&<>()'


class Block(NamedTuple):
  """A fenced block of a page."""

  line: int  # its first, of the page
  language: str
  text: str
  reason: str | None  # why it isn't run


class Command(NamedTuple):
  """A command of rnn_jax, as a page has it."""

  line: int
  name: str
  words: list[str]  # its flags, as the shell passes them


def blocks(text: str, *languages: str) -> list[Block]:
  """Returns the fenced blocks of these languages, in order."""
  return [
    Block(_line(text, match.start(3)), match[2], match[3], match[1])
    for match in FENCED.finditer(text)
    if match[2] in languages
  ]


def shell(text: str) -> Iterator[tuple[int, str]]:
  """Yields (line, command line) of a page: indented lines, and fenced ones.

  A line that ends with a backslash and those after it are one.
  """
  lines = FENCED.sub(_indented, text).split('\n')
  n = 0
  while n < len(lines):
    first = n
    while lines[n].endswith('\\'):
      n += 1
    n += 1
    if lines[first].startswith('    '):
      yield first + 1, ' '.join(x.rstrip('\\').strip() for x in lines[first:n])


def commands(text: str) -> list[Command]:
  """Returns the commands of a page, those inside sentences and tables too."""
  inline = (
    (_line(text, match.start()), ' '.join(match[1].split()))
    for match in INLINE.finditer(FENCED.sub(_blank, text))
  )
  return [
    Command(n, match[1], words(match[2]))
    for n, line in (*shell(text), *inline)
    if (match := COMMAND.search(line))
  ]


def words(line: str) -> list[str]:
  """Returns the words of a command, up to what the shell does with it."""
  found = []
  lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
  lexer.whitespace_split = True
  for word in lexer:
    if word and set(word) <= {*OPERATORS}:
      break
    found.append(word)
  return found


def read(name: str) -> str:
  """Returns the text of a page."""
  return PAGES[name].read_text(encoding='utf-8')


def _indented(match):
  """A fenced block with as many lines: a shell's indented, others blank."""
  if match[2] not in SHELL or match[1]:
    return _blank(match)
  indented = re.sub('^', '    ', match[3], flags=re.M)
  return match.group().replace(match[3], indented)


def _blank(match):
  return '\n' * match.group().count('\n')


def _line(text, place):
  return text.count('\n', 0, place) + 1
