"""The API reference: a page for each module, from its docstrings.

The list has public modules (tests/support/public_names.py has the rule) apart
from the others.

Docstrings are Markdown with the sections Args, Returns, Yields, Raises and
Attributes; griffe reads them without importing anything.
"""

import ast
import pathlib
import re
from collections.abc import Iterator

import griffe

from tests.support import public_names

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = 'rnn_jax'
FIELDS = {'parameters': 'param', 'raises': 'raises', 'attributes': 'ivar'}
PUBLIC = frozenset(public_names.modules())
INNER = '*Not public: it may change in any version.*'


def pages() -> Iterator[tuple[str, str]]:
  """Yields (name, Markdown) of each module's page, and of their list."""
  loader = griffe.GriffeLoader(
    search_paths=[str(ROOT)], docstring_parser='google'
  )
  package = loader.load(PACKAGE)
  for module in _modules(package):
    yield f'api/{module.path}', _page(module)
  yield 'api/index', _index(package)


def _modules(module):
  yield module
  for child in _children(module):
    yield from _modules(child)


def _children(module):
  return [
    child
    for name, child in sorted(module.modules.items())
    if not child.is_alias and not name.startswith('_')
  ]


def _index(package):
  """Lists of links: in the side bar, hundreds of pages would hide the rest."""
  public, inner = [], []
  for module in _modules(package):
    depth = module.path.count('.')
    doc = module.docstring.value if module.docstring else ''
    about = _inline(' '.join(doc.split('\n\n')[0].split()))
    line = f'* [`{module.path}`]({module.path}.md) {about}'
    if _leads_to_public(module):
      public.append('  ' * depth + line)
    else:
      inner.append(line)
  lines = ['# API reference', '', 'Public modules: names that begin with an']
  lines += ['underscore are private.', '', *public, '', '## Other modules', '']
  lines += ['They may change in any version.', '', *inner]
  return '\n'.join(lines) + '\n'


def _leads_to_public(module):
  inside = f'{module.path}.'
  return any(name == module.path or name.startswith(inside) for name in PUBLIC)


def _page(module):
  lines = ['---', 'orphan: true', '---', '', f'# `{module.path}`', '']
  lines += [f':::{{py:module}} {module.path}', ':::', '']
  if not _leads_to_public(module):
    lines += [INNER, '']
  lines += _text(module) + ['']
  for member in _public(module):
    lines += _member(member, 6) + ['']
  for name, source in _reexported(module):
    lines.append(f'* `{name}` of [`{source}`]({source}.md)')
  for child in _children(module):
    lines.append(f'* [`{child.path}`]({child.path}.md)')
  return '\n'.join(lines)


def _reexported(module):
  """Yields (name, module) of each `from module import name as name`."""
  for node in ast.walk(ast.parse(module.filepath.read_text())):
    if isinstance(node, ast.ImportFrom) and node.module:
      for one in node.names:
        if one.asname == one.name and node.module.startswith(PACKAGE):
          whole = f'{node.module}.{one.name}'
          folder = ROOT.joinpath(*whole.split('.'))
          is_module = folder.is_dir() or folder.with_suffix('.py').is_file()
          yield one.name, whole if is_module else node.module


def _public(scope):
  """Members with a docstring, or that are constants, as the file has them."""
  found = [
    member
    for name, member in scope.members.items()
    if not name.startswith('_')
    and not member.is_alias
    and (member.is_class or member.is_function or member.is_attribute)
  ]
  return sorted(found, key=lambda member: member.lineno or 0)


def _member(member, colons):
  """A directive of Sphinx's Python domain, with what is in it."""
  fence = ':' * colons
  if member.is_function:
    method = member.parent.is_class
    kind = 'method' if method else 'function'
    if 'property' in member.labels:
      kind = 'property'
    head = f'{fence}{{py:{kind}}} {_signature(member)}'
  elif member.is_class:
    bases = ', '.join(str(base) for base in member.bases)
    head = f'{fence}{{py:class}} {member.name}' + (
      f'({bases})' if bases else ''
    )
  else:
    return _attribute(member, fence)
  lines = [head, '', *_text(member), '']
  if member.is_class:
    for child in _public(member):
      lines += _member(child, colons - 1)
  return [*lines, fence]


def _attribute(member, fence):
  head = [f'{fence}{{py:attribute}} {member.name}']
  if member.annotation is not None:
    head.append(f':type: {_type(member.annotation)}')
  if member.value is not None and len(_one_line(member.value)) < 80:
    head.append(f':value: {_one_line(member.value)}')
  return [*head, '', *_text(member), fence]


def _type(expression):
  """An annotation with the whole names of our types, which are links."""
  match expression:
    case griffe.ExprName():
      return _whole(expression, expression.parent)
    case griffe.ExprAttribute():
      return _whole(expression, expression.first.parent)
    case griffe.Expr():
      return ''.join(map(_type, expression.iterate(flat=False)))
  return re.sub(r'\s+', ' ', str(expression))


def _whole(name, scope):
  """The name by which a class of this package is documented."""
  path = name.canonical_path
  if not path.startswith(f'{PACKAGE}.'):
    return str(name)
  try:
    return scope.modules_collection[path].canonical_path
  except KeyError:
    return str(name)


def _one_line(expression):
  return ' '.join(str(expression).split())


def _signature(function):
  if 'property' in function.labels:
    return function.name
  parameters, starred = [], False
  for one in function.parameters:
    if one.name in ('self', 'cls') and function.parent.is_class:
      continue
    if one.kind is griffe.ParameterKind.keyword_only and not starred:
      parameters.append('*')
    starred |= one.kind in (
      griffe.ParameterKind.keyword_only,
      griffe.ParameterKind.var_positional,
    )
    stars = {
      griffe.ParameterKind.var_positional: '*',
      griffe.ParameterKind.var_keyword: '**',
    }.get(one.kind, '')
    text = stars + one.name
    if one.annotation is not None:
      text += f': {_type(one.annotation)}'
    if one.default is not None and not stars:
      text += f' = {_one_line(one.default)}'
    parameters.append(text)
  returned = function.returns
  arrow = '' if returned is None else f' -> {_type(returned)}'
  return f'{function.name}({", ".join(parameters)}){arrow}'


def _text(member):
  """The docstring as Markdown: its text, then a field list."""
  if member.docstring is None:
    return []
  lines, fields = [], []
  for section in member.docstring.parse('google', warnings=False):
    kind = section.kind.value
    if kind == 'text':
      lines += [section.value, '']
    elif kind in FIELDS:
      for item in section.value:
        name = getattr(item, 'name', None) or str(item.annotation)
        about = ' '.join(item.description.split())
        fields.append(f':{FIELDS[kind]} {name.lstrip("*")}: {_inline(about)}')
    elif kind in ('returns', 'yields'):
      said = [
        ' '.join(f'{item.annotation or ""} {item.description}'.split())
        for item in section.value
      ]
      fields.append(f':{kind}: {_inline("; ".join(said))}')
    else:  # an admonition or an example: as text
      lines += [str(getattr(section.value, 'contents', section.value)), '']
  return [*lines, *fields]


def _inline(text):
  """Escapes what Markdown would take for emphasis."""
  return re.sub(r'(?<!`)([*<])', r'\\\1', text)
