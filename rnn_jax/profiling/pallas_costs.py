"""What kernels of Pallas compute, by the equations that they were traced from.

XLA's text has only their operands and results. A kernel's products and
elementwise instructions are those of its body, as often as it has programs: of
a loop those of all turns, if their number is known. Kernels are found in the
text by their results; of two with results of the same shapes, what the larger
one computes counts for both.
"""

from collections.abc import Iterator
from typing import Any

from jax.extend import core

from rnn_jax.profiling import costs
from rnn_jax.profiling import flops
from rnn_jax.profiling import hlo

CALLS = ('pallas_call', 'mpmd_map')
SHORT = {  # XLA's names of jax's dtypes, where they aren't a letter and bits
  'bfloat16': 'bf16',
  'bool': 'pred',
  'float8_e4m3fn': 'f8e4m3fn',
  'float8_e5m2': 'f8e5m2',
}
ELEMENTWISE = costs.SPECIAL | {
  *('add', 'sub', 'mul', 'neg', 'max', 'min', 'select_n', 'and', 'or', 'xor'),
  *('integer_pow', 'square', 'abs', 'eq', 'ne', 'lt', 'le', 'gt', 'ge'),
  *('convert_element_type', 'reduce_sum', 'reduce_max'),
}


def of(jaxpr: core.ClosedJaxpr | core.Jaxpr) -> costs.Kernels:
  """Returns what the kernels of a program compute, by their results.

  Their bytes are 0: those of operands and results are in the program's text.
  """
  found: dict[tuple[str, ...], costs.Cost] = {}
  for eqn in _equations(jaxpr):
    if eqn.primitive.name in CALLS:
      results = tuple(sorted(_shape(var.aval) for var in eqn.outvars))
      programs = flops.repeats(eqn.primitive.name, eqn.params)
      one = costs.Cost(
        0.0, flops.of_equation(eqn), programs * _instructions(eqn)
      )
      if one.flops >= found.get(results, costs.NOTHING).flops:
        found[results] = one
  return found


def _equations(jaxpr) -> Iterator[Any]:
  """Yields all equations, those of kernels' bodies excepted."""
  for eqn in getattr(jaxpr, 'jaxpr', jaxpr).eqns:
    yield eqn
    if eqn.primitive.name not in CALLS:
      for inner in flops.jaxprs(eqn.params.values()):
        yield from _equations(inner)


def _instructions(eqn):
  """Returns the elementwise instructions of one program of a kernel."""
  total = 0
  for inner in flops.jaxprs(eqn.params.values()):
    for one in getattr(inner, 'jaxpr', inner).eqns:
      name = one.primitive.name
      times = one.params.get('length', 1) if name == 'scan' else 1
      total += times * _instructions(one)
      numbers = [var.aval for var in one.outvars if hasattr(var.aval, 'size')]
      if name in ELEMENTWISE and numbers:
        slow = costs.SLOW if name in costs.SPECIAL else 1
        total += slow * sum(aval.size for aval in numbers)
  return total


def _shape(aval):
  name = aval.dtype.name
  short = SHORT.get(name)
  if short is None:
    letter = {'f': 'f', 'i': 's', 'u': 'u'}.get(name[0], name[0])
    short = letter + ''.join(x for x in name if x.isdigit())
  return f'{short}[{",".join(map(str, aval.shape))}]'


def unmatched(program: hlo.Program, made: costs.Kernels) -> list[str]:
  """Returns the calls of kernels of Pallas that aren't among `made`."""
  return [
    name
    for name, one in program.operations.items()
    if is_one(one)
    and tuple(sorted(shape for shape, _ in one.arrays)) not in made
  ]


def is_one(operation: hlo.Operation) -> bool:
  """Returns whether an operation is a kernel of Pallas."""
  if operation.opcode != 'custom-call':
    return False
  called = costs.TARGET.search(operation.attributes)
  return bool(called) and any(x in called[1] for x in ('mosaic', 'triton'))
