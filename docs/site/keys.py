"""Every key of a config: its default, its limits, and the comment beside it."""

import ast
import dataclasses
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator

from rnn_jax import config
from rnn_jax.config import parts
from rnn_jax.config import values

NO_KEYS = dataclasses.make_dataclass('NoKeys', [])
HEAD = '| key | default | meaning |', '|---|---|---|'


def pages() -> Iterator[tuple[str, str]]:
  """Yields the page of all keys."""
  lines = ['# Config keys', '']
  lines += ['Sections that every config has, then those of its parts. Each key']
  lines += ['is also a flag: `--config.train.steps=2000`.', '']
  for field in dataclasses.fields(config.Config):
    if dataclasses.is_dataclass(field.default):
      lines += _section(field.name, type(field.default))
  for kind in parts.KINDS:
    lines += _parts(kind)
  yield 'keys', '\n'.join(lines) + '\n'


def _section(name, section):
  rows = [*_rows(section, f'{name}.')]
  return [f'## `{name}`', '', _about(section), '', *HEAD, *rows, '']


def _parts(kind):
  lines = [f'## `{kind.key}`', '']
  section = getattr(config.Config(), kind.section, None)
  common = {field.name for field in dataclasses.fields(section or NO_KEYS)}
  for name in parts.names(kind.folder):
    module = parts.load(kind.folder, name, kind.key)
    rows = [*_rows(module.Config, f'{kind.section}.', common)]
    doc = (module.__doc__ or '').strip().split('\n\n')[0]
    lines += [f'### `{name}`', '', doc, '']
    lines += [*HEAD, *rows, ''] if rows else ['No keys of its own.', '']
  return lines


def _rows(section, prefix, without=()) -> Iterator[str]:
  comments = _comments(section)
  for field in dataclasses.fields(section):
    if field.name in without or field.default is dataclasses.MISSING:
      continue
    key, value = prefix + field.name, field.default
    if dataclasses.is_dataclass(value):
      yield from _rows(type(value), f'{key}.')
      continue
    about = comments.get(field.name, '').rstrip('.'), _limits(field.metadata)
    cells = f'`{key}`', f'`{value!r}`', '; '.join(filter(None, about))
    yield f'| {" | ".join(map(_cell, cells))} |'


def _limits(metadata):
  """Returns what `--help` says of values, with keys as code."""
  text = values.describe(metadata)
  return re.sub(r'\b[a-z]+\.[a-z_0-9]+(=[^,;]+)?', r'`\g<0>`', text)


def _cell(text):
  return text.replace('|', '\\|').replace('<', '\\<').replace('*', '\\*')


def _about(section):
  return (inspect.getdoc(section) or '').split('\n\n')[0]


def _comments(section):
  """Returns {field: the comment above it or beside it}."""
  found: dict[str, str] = {}
  for base in reversed(section.__mro__):
    if dataclasses.is_dataclass(base):
      found |= _comments_of(textwrap.dedent(inspect.getsource(base)))
  return found


def _comments_of(source):
  lines = {
    token.start[0]: (token.string.lstrip('# '), token.line.lstrip()[0] == '#')
    for token in tokenize.generate_tokens(io.StringIO(source).readline)
    if token.type == tokenize.COMMENT
  }
  found = {}
  for node in ast.parse(source).body[0].body:
    if not isinstance(node, ast.AnnAssign):
      continue
    first = node.lineno
    while first - 1 in lines and lines[first - 1][1]:
      first -= 1
    own = range(first, (node.end_lineno or node.lineno) + 1)
    found[node.target.id] = ' '.join(lines[n][0] for n in own if n in lines)
  return found
