"""A traced function as a list of nodes, without the calls in it.

Each node is one primitive; functions that it calls are inlined, two pairs of
operations are joined, and what no result needs is left out.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

# What an operation runs, by its name: it takes the operation's place.
INNER = {
  'jit': 'jaxpr',
  'pjit': 'jaxpr',
  'closed_call': 'call_jaxpr',
  'checkpoint': 'jaxpr',
  'remat2': 'jaxpr',
  'custom_jvp_call': 'call_jaxpr',
  'custom_vjp_call': 'call_jaxpr',
  'custom_vmap_call': 'call',
}


@dataclasses.dataclass(eq=False)
class Value:
  """An array: `known` when the function is traced, or made by a node."""

  shape: tuple[int, ...]
  dtype: Any
  known: Any = None
  node: 'Node | None' = None

  @property
  def size(self) -> int:
    """How many numbers it has."""
    return math.prod(self.shape)

  @property
  def number(self) -> Any:
    """The number of a scalar that is written in the program, else None."""
    kinds = bool, int, float, np.generic, np.ndarray
    if self.shape or not isinstance(self.known, kinds):
      return None
    return np.asarray(self.known)[()]


@dataclasses.dataclass(eq=False)
class Node:
  """One operation."""

  name: str
  primitive: Any
  params: dict[str, Any]
  inputs: list[Value]
  outputs: list[Value] = dataclasses.field(default_factory=list)
  has_effects: bool = False

  @property
  def result(self) -> Value:
    """The first result."""
    return self.outputs[0]


def of_array(x: Any) -> Value:
  """Returns the Value of an array or a tracer."""
  return Value(jnp.shape(x), jax.typeof(x).dtype, x)


def trace(
  closed: Any, inputs: Sequence[Value]
) -> tuple[list[Node], list[Value]]:
  """Returns (the nodes in order, the results) of a jaxpr.

  Args:
    closed: a jaxpr, closed or without constants.
    inputs: its arguments.
  """
  nodes: list[Node] = []
  results = _inline(closed, inputs, nodes)
  needed, live = {*results}, []
  for node in reversed(nodes):
    if node.has_effects or not needed.isdisjoint(node.outputs):
      needed |= {*node.inputs}
      live.append(node)
  return live[::-1], results


def _inline(closed, inputs, nodes):
  jaxpr = getattr(closed, 'jaxpr', closed)
  consts = map(of_array, getattr(closed, 'consts', ()))
  values = dict(zip(jaxpr.constvars, consts, strict=True))
  values |= dict(zip(jaxpr.invars, inputs, strict=True))

  def value(atom):
    if isinstance(atom, core.Literal):
      return Value(atom.aval.shape, atom.aval.dtype, atom.val)
    return values[atom]

  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    read = [value(x) for x in equation.invars]
    if name in INNER:
      made = _inline(params[INNER[name]], read, nodes)
    elif name == 'stack':
      run = functools.partial(_stack, params['axis'])
      shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in read]
      made = _inline(jax.make_jaxpr(run)(*shapes), read, nodes)
    else:
      effects = bool(equation.effects)
      node = Node(name, equation.primitive, params, read, [], effects)
      made = [
        Value(x.aval.shape, x.aval.dtype, None, node) for x in equation.outvars
      ]
      node.outputs = made
      _join(node)
      nodes.append(node)
    values |= dict(zip(equation.outvars, made, strict=True))
  return [value(atom) for atom in jaxpr.outvars]


def _stack(axis, *arrays):
  return jnp.concatenate([jnp.expand_dims(x, axis) for x in arrays], axis)


def _join(node):
  """Makes a node one of silu, x logistic(x), or log1p_exp, log(1 + e^x)."""
  if node.outputs[0].dtype != jnp.float32:
    return
  if node.name == 'mul':
    for x, other in (node.inputs, node.inputs[::-1]):
      if _is_of(other, 'logistic', x):
        node.name, node.inputs = 'silu', [x]
        return
  elif node.name == 'log1p':
    inner = node.inputs[0].node
    if inner is not None and inner.name == 'exp':
      node.name, node.inputs = 'log1p_exp', inner.inputs


def _is_of(value, name, x):
  node = value.node
  return node is not None and node.name == name and node.inputs[0] is x
