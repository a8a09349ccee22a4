"""From a traced program of jax to nodes of ONNX.

Each operation of jax has a rule, a function in a file of rules/:

    rule(context, equation, values) -> values

It adds nodes to `context.graph` and returns the equation's outputs. A file's
RULES are by the operation's name.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from jax.extend import core

from rnn_jax import errors
from rnn_jax.interop.onnx import graph as graph_lib
from rnn_jax.interop.onnx import rules

Value = graph_lib.Value
Rule = Callable[['Context', Any, list[Value]], list[Value]]


class Context:
  """What a rule works with.

  Attributes:
    graph: where its nodes go.
  """

  def __init__(self, graph: graph_lib.Graph) -> None:
    self.graph = graph

  def value(self, name: str, aval: Any) -> Value:
    """Returns a tensor that is stored in full."""
    return Value(name, aval.shape, aval.shape, aval.dtype)

  def run(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Value]):
    """Adds the nodes of a jaxpr. Returns its outputs' values.

    Args:
      jaxpr: of jax.extend.core.
      consts: arrays or values, of its constvars.
      args: of its invars.

    Raises:
      InputError: an operation has no rule.
    """
    known: dict[Any, Value] = {}

    def read(variable):
      if isinstance(variable, core.Literal):
        return self.constant(variable.val, variable.aval.dtype)
      return known[variable]

    for variable, const in zip(jaxpr.constvars, consts, strict=True):
      known[variable] = (
        const
        if isinstance(const, Value)
        else self.constant(const, variable.aval.dtype)
      )
    known.update(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
      values = [read(variable) for variable in equation.invars]
      outputs = _rule(equation)(self, equation, values)
      known.update(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in jaxpr.outvars]

  def constant(self, array: Any, dtype: Any) -> Value:
    """Returns a constant of jax."""
    x = np.asarray(array, dtype)
    return Value(self.graph.constant(x), x.shape, x.shape, x.dtype)

  def body(
    self,
    jaxpr: Any,
    consts: Sequence[Any],
    name: str,
    before: Sequence[onnx.ValueInfoProto] = (),
    condition: Any = None,
  ) -> onnx.GraphProto:
    """Returns a jaxpr as a graph inside this one.

    Args:
      jaxpr: closed; the graph's outputs are its.
      consts: values of its first inputs, from around it; the others are inputs
        of the graph.
      name: of the graph.
      before: more inputs, in front.
      condition: from (the inner context, the outputs) to one more output, in
        front; None: none.
    """
    inner = Context(graph_lib.Graph(self.graph))
    declared = [*before]
    args = [*consts]
    for variable in opened(jaxpr)[0].invars[len(consts) :]:
      label = inner.graph.fresh('input')
      aval = variable.aval
      declared.append(graph_lib.info(label, aval.shape, aval.dtype))
      args.append(inner.value(label, aval))
    outputs = inner.run(*opened(jaxpr), args)
    names, infos = [], []
    if condition is not None:
      outputs = [condition(inner, outputs), *outputs]
    for value in outputs:
      label = inner.graph.whole(value)
      # An output is made by this graph, and is one output only.
      if not inner.graph.has_made(label) or label in names:
        label = inner.graph.node('Identity', label)
      names.append(label)
      infos.append(graph_lib.info(label, value.shape, value.dtype))
    return inner.graph.build(name, declared, infos)


def opened(closed: Any) -> tuple[Any, Sequence[Any]]:
  """Returns the (jaxpr, consts) of a closed one; jax 0.12 has no difference."""
  return getattr(closed, 'jaxpr', closed), getattr(closed, 'consts', ())


@functools.cache
def _rules() -> dict[str, Rule]:
  table: dict[str, Rule] = {}
  for module in pkgutil.iter_modules(rules.__path__):
    table |= importlib.import_module(f'{rules.__name__}.{module.name}').RULES
  return table


def _rule(equation):
  name = equation.primitive.name
  if name not in _rules():
    where = str(equation.source_info.name_stack) or 'the model'
    raise errors.InputError(
      f'--format=onnx: {where} needs {name!r} of jax, which has no ONNX form '
      'here: use --format=stablehlo'
    )
  return _rules()[name]
