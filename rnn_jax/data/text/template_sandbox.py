"""Jinja's sandbox for chat templates, bounded in what a rendering may use.

Jinja's immutable sandbox keeps a template from Python's inside; it may still
ask for `'a' * 45e8`. Here a template's program is changed before it is
compiled, so that loops, macros, comparisons and concatenations charge a meter
(template_meter.py), and the sandbox's operators, calls, filters and tests do
(template_costs.py). What a template writes isn't changed.
"""

import datetime
import functools
import json
import types
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2 import runtime
from jinja2 import utils
from jinja2 import visitor

from rnn_jax.data.text import template_costs
from rnn_jax.data.text import template_meter

LONGEST, TOKENS = 2**17, 2**15  # characters and tokens of a template
FORM = 200  # characters of the format of a date
METHODS = (types.BuiltinMethodType, types.MethodType)
# Filters that only a changed program names: no template can write a space.
TICK, LOOPED, COMPARED, JOINED = 'a tick', 'a loop', 'a comparison', 'a join'


class Generation(jinja2.ext.Extension):
  """{% generation %}...{% endgeneration %} stands for what is in it."""

  tags = {'generation'}  # noqa: RUF012, Jinja's own form

  def parse(self, parser: Any) -> nodes.Node:
    line = next(parser.stream).lineno
    body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
    return nodes.Scope(body, lineno=line)


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
  """What transformers documents that a template may rely on, bounded."""

  intercepted_binops = frozenset(template_costs.OPERATORS)

  def __init__(self) -> None:
    super().__init__(
      trim_blocks=True,
      lstrip_blocks=True,
      extensions=[Generation, jinja2.ext.loopcontrols],
      finalize=_shown,
      optimized=False,  # what is computed once has no price
    )
    self.concat = _concatenated  # type: ignore[assignment]
    self.filters['tojson'] = _to_json
    self.globals |= {
      'lipsum': _lipsum,
      'raise_exception': _raise_exception,
      'strftime_now': _strftime_now,
    }
    self.filters = {
      name: _filter(name, function) for name, function in self.filters.items()
    }
    self.filters |= {
      TICK: _tick,
      LOOPED: _looped,
      COMPARED: _compared,
      JOINED: _joined,
    }
    self.tests = {
      name: _test(function) if name in template_costs.TESTS else function
      for name, function in self.tests.items()
    }

  def compiled(self, text: str) -> jinja2.Template:
    """Returns the program of a template.

    Raises:
      jinja2.TemplateError, RecursionError: it isn't one, or nested too deep.
      Exceeded: it is too long.
    """
    tree = _Changes().visit(self.read(text))
    tree.set_environment(self)
    with template_meter.measured():  # of what is constant
      code = self.compile(tree, filename='<template>')
    return self.template_class.from_code(
      self, code, self.make_globals(None), None
    )

  def read(self, text: str) -> nodes.Template:
    """Returns the nodes of a template, unchanged. Raises as `compiled`."""
    if len(text) > LONGEST:
      raise template_meter.Exceeded(
        f'it has {len(text):,} characters, and may have {LONGEST:,}'
      )
    if any(n > TOKENS for n, _ in enumerate(self.lex(text))):
      raise template_meter.Exceeded(f'it has more than {TOKENS:,} parts')
    return self.parse(text)

  def call_binop(
    self, context: Any, operator: str, left: Any, right: Any
  ) -> Any:
    meter = template_meter.current()
    if operator == '+' and type(left) is type(right) is str:  # most of them
      meter.expect(len(left) + len(right))
      return left + right
    template_costs.OPERATORS[operator](meter, left, right)
    return self.binop_table[operator](left, right)

  def getitem(self, obj: Any, argument: Any) -> Any:
    if isinstance(argument, slice):
      return template_meter.current().made(super().getitem(obj, argument))
    if isinstance(argument, tuple):
      template_meter.current().deep(argument)  # it is hashed
    return super().getitem(obj, argument)

  def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
    if super().wrap_str_format(value) is None:
      return None
    owner, by_map = value.__self__, value.__name__ == 'format_map'
    formatter = (
      _EscapeFormatter(self, escape=owner.escape)
      if hasattr(owner, '__html__')
      else _Formatter(self)
    )

    def call(*args, **kwargs):
      if by_map:
        (kwargs,), args = args, ()
      made = formatter.vformat(owner, args, kwargs)
      return template_meter.current().made(type(owner)(made))

    return functools.update_wrapper(call, value)

  def call(  # noqa: N805, as in Jinja: keywords may have any name
    __self: Any, __context: Any, __obj: Any, *args: Any, **kwargs: Any
  ) -> Any:
    meter = template_meter.current()
    meter.spend(
      template_meter.CALL + template_meter.ENTRY * (len(args) + len(kwargs))
    )
    if isinstance(__obj, METHODS):
      given = [*args]
      template_costs.method(
        meter, __obj.__self__, __obj.__name__, given, kwargs
      )
      args = (*given,)
    return meter.made(super().call(__context, __obj, *args, **kwargs))


class _Formatter(jinja2.sandbox.SandboxedFormatter):
  """Of str.format: its fields are charged, and have no great widths."""

  def format_field(self, value: Any, format_spec: str) -> str:
    meter = template_meter.current()
    meter.spend(template_meter.STEP)
    meter.spec(format_spec)
    meter.deep(value)
    return super().format_field(value, format_spec)

  def convert_field(self, value: Any, conversion: Any) -> Any:
    if conversion:
      template_meter.current().deep(value)
    return super().convert_field(value, conversion)


class _EscapeFormatter(_Formatter, jinja2.sandbox.SandboxedEscapeFormatter):
  """Of a text of HTML."""


class _Changes(visitor.NodeTransformer):
  """Makes a program charge what its loops and operators use."""

  def __init__(self) -> None:
    self._prices: dict[int, int] = {}

  def visit_Template(self, node: nodes.Template) -> nodes.Node:
    self._price(node)
    return self.generic_visit(node)

  def visit_For(self, node: nodes.For) -> nodes.Node:
    prices = self._prices[id(node)], self._prices.get(id(node.test))
    self.generic_visit(node)
    node.body.insert(0, _ticking(node, prices[0]))
    if node.test:  # of items that the body doesn't see
      node.iter = _call(LOOPED, node.iter, [nodes.Const(prices[1])])
    return node

  def visit_Macro(self, node: Any) -> nodes.Node:
    price = self._prices[id(node)]
    self.generic_visit(node)
    node.body.insert(0, _ticking(node, price))
    return node

  visit_CallBlock = visit_Block = visit_Macro

  def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
    self.generic_visit(node)
    operands: list[Any] = [node, *node.ops]
    for each in operands:
      if not _is_constant(each.expr):
        each.expr = _call(COMPARED, each.expr, [])
    return node

  def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
    self.generic_visit(node)
    if not _is_constant(node.key):
      node.key = _call(COMPARED, node.key, [])  # it is hashed
    return node

  def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
    self.generic_visit(node)
    first, *rest = node.nodes
    return _call(JOINED, first, rest)

  def _price(self, node):
    """Sets the price of computing each node once. Returns that of `node`."""
    price = template_meter.NODE
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
      price += len(node.value)
    price += sum(map(self._price, node.iter_child_nodes()))
    self._prices[id(node)] = price
    return price


def _call(name, node, args):
  return nodes.Filter(node, name, args, [], None, None, lineno=node.lineno)


def _ticking(node, price):
  price = nodes.Const(price, lineno=node.lineno)
  return nodes.ExprStmt(_call(TICK, price, []), lineno=node.lineno)


def _is_constant(node):
  if isinstance(node, (nodes.List, nodes.Tuple)):
    return all(map(_is_constant, node.items))
  return isinstance(node, nodes.Const)


@jinja2.pass_context
def _tick(context, price):
  del context  # it keeps this from being computed once, while compiling
  template_meter.current().spend(price)


def _looped(values, price):
  """Returns what a loop takes its items from; each costs `price`."""
  meter = template_meter.current()
  if isinstance(values, Iterator):
    return meter.items(values, price)
  if hasattr(values, '__len__'):
    meter.spend(len(values) * price)
  return values


def _compared(value):
  if type(value) not in template_meter.PLAIN:
    template_meter.current().deep(value)
  return value


@jinja2.pass_eval_context
def _joined(context, *values):
  meter = template_meter.current()
  meter.expect(6 * sum(map(meter.deep, values)))  # of HTML it is escaped
  join = runtime.markup_join if context.autoescape else runtime.str_join
  return join(values)


def _shown(value):
  """Returns a value that is written, and may be escaped as HTML."""
  meter = template_meter.current()
  meter.spend(6 * (len(value) if type(value) is str else meter.deep(value)))
  return value


def _concatenated(pieces):
  pieces = [*pieces]
  template_meter.current().expect(sum(map(len, pieces)))
  return ''.join(pieces)


def _filter(name, function):
  """Returns a filter that charges what it makes."""
  first = int(getattr(function, 'jinja_pass_arg', None) is not None)

  @functools.wraps(function)
  def call(*args, **kwargs):
    meter = template_meter.current()
    value, rest = args[first], args[first + 1 :]
    if name not in template_costs.SHALLOW and isinstance(value, Iterator):
      value = [*meter.items(value)]
    template_costs.filtered(meter, name, value, rest, kwargs)
    made = function(*args[:first], value, *rest, **kwargs)
    if isinstance(made, Iterator):
      return meter.items(made)
    return meter.made(made)

  return call


def _test(function):
  """Returns a test that charges what it looks into."""

  @functools.wraps(function)
  def call(*args, **kwargs):
    meter = template_meter.current()
    meter.deep(args[0])
    meter.deep(args[1:])
    return function(*args, **kwargs)

  return call


def _to_json(
  value: Any,
  ensure_ascii: bool = False,
  indent: int | None = None,
  separators: tuple[str, str] | None = None,
  sort_keys: bool = False,
) -> str:
  encoder = json.JSONEncoder(
    ensure_ascii=ensure_ascii,
    indent=indent,
    separators=separators,
    sort_keys=sort_keys,
  )
  if indent is None and separators is None:
    return encoder.encode(value)
  meter, pieces, size = template_meter.current(), [], 0
  for piece in encoder.iterencode(value):
    size += len(piece)
    if size > meter.value:
      meter.expect(size)
    pieces.append(piece)
  return ''.join(pieces)


def _lipsum(
  n: int = 5, html: bool = True, min: int = 20, max: int = 100
) -> str:
  template_meter.current().width(n * max)
  return utils.generate_lorem_ipsum(n, html, min, max)


def _raise_exception(message: Any) -> None:
  template_meter.current().deep(message)
  raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
  if len(form) > FORM:
    raise template_meter.Exceeded(
      f'it gives a date a format of {len(form):,} characters, and may give '
      f'{FORM}'
    )
  return datetime.datetime.now().strftime(form)
