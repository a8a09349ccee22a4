"""Operations on each number by itself.

ONNX broadcasts, so operands needn't be whole. jax's uint32, which wraps around,
is int64 modulo 2^32: angles of rotary positions are such numbers.
"""

import numpy as np

from rnn_jax.interop.onnx import graph as graph_lib

WRAP = 2**32
Value = graph_lib.Value


def broadcast(*values: Value) -> graph_lib.Shape:
  """Returns the stored shape of an elementwise result."""
  rank = max(len(value.stored) for value in values)
  sizes: list = [1] * rank
  for value in values:
    for axis, size in enumerate(value.stored, rank - len(value.stored)):
      if not (graph_lib.is_static(size) and size == 1):
        sizes[axis] = size
  return tuple(sizes)


def elementwise(compute):
  """Returns the rule of compute(graph, names, equation) -> name."""

  def rule(context, equation, values):
    (output,) = equation.outvars
    names = [value.name for value in values]
    name = compute(context.graph, names, equation)
    if output.aval.dtype == np.uint32:
      name = context.graph.node(
        'Mod', name, context.graph.constant(np.int64(WRAP))
      )
    shape, dtype = output.aval.shape, output.aval.dtype
    return [Value(name, broadcast(*values), shape, dtype)]

  return rule


def _plain(operator):
  return elementwise(lambda graph, names, _: graph.node(operator, *names))


def _by_type(of_bools, of_others):
  def compute(graph, names, equation):
    is_bool = equation.invars[0].aval.dtype == bool
    return graph.node(of_bools if is_bool else of_others, *names)

  return elementwise(compute)


def _not_equal(graph, names, equation):
  if equation.invars[0].aval.dtype == bool:
    return graph.node('Xor', *names)
  return graph.node('Not', graph.node('Equal', *names))


def _rsqrt(graph, names, equation):
  del equation
  return graph.node('Reciprocal', graph.node('Sqrt', *names))


def _log1p(graph, names, equation):
  """Small numbers keep their digits: log(1 + x) = 2 atanh(x / (2 + x))."""
  del equation
  (x,) = names
  one, two = _number(graph, 1), _number(graph, 2)
  ratio = graph.node('Div', x, graph.node('Add', x, two))
  small = graph.node('Mul', graph.node('Atanh', ratio), two)
  large = graph.node('Log', graph.node('Add', x, one))
  return graph.node('Where', graph.node('Less', x, one), small, large)


def _expm1(graph, names, equation):
  """Small numbers keep their digits: e^x - 1 = tanh(x / 2) (e^x + 1)."""
  del equation
  (x,) = names
  half = graph.node('Tanh', graph.node('Mul', x, _number(graph, 0.5)))
  more = graph.node('Add', graph.node('Exp', x), _number(graph, 1))
  return graph.node('Mul', half, more)


def _exp2(graph, names, equation):
  del equation
  return graph.node('Exp', graph.node('Mul', *names, _number(graph, np.log(2))))


def _erfc(graph, names, equation):
  del equation
  return graph.node('Sub', _number(graph, 1), graph.node('Erf', *names))


def _bitcast(graph, names, equation):
  dtype = np.dtype(equation.params['new_dtype'])
  return graph.node('BitCast', *names, to=graph_lib.TYPES[dtype.name])


def _shift_left(graph, names, equation):
  """Times a power of 2, modulo 2^32, as integers."""
  del equation
  x, count = (graph.cast(name, np.int64) for name in names)
  power = graph.node('Pow', graph.constant(np.int64(2)), count)
  whole, half = (graph.constant(np.int64(n)) for n in (WRAP, WRAP // 2))
  low = graph.node('Mod', graph.node('Mul', x, power), whole)
  is_small = graph.node('Less', low, half)
  signed = graph.node('Where', is_small, low, graph.node('Sub', low, whole))
  return graph.cast(signed, np.int32)


def _square(graph, names, equation):
  del equation
  return graph.node('Mul', names[0], names[0])


def _integer_pow(graph, names, equation):
  power = equation.params['y']
  if power == 2:
    return graph.node('Mul', names[0], names[0])
  exponent = np.asarray(power, equation.invars[0].aval.dtype)
  return graph.node('Pow', names[0], graph.constant(exponent))


def _is_finite(graph, names, equation):
  del equation
  odd = graph.node(
    'Or', graph.node('IsInf', *names), graph.node('IsNaN', *names)
  )
  return graph.node('Not', odd)


def _select(graph, names, equation):
  assert len(names) == 3, equation  # two cases
  which, no, yes = names
  if equation.invars[1].aval.dtype != bool:
    return graph.node('Where', which, yes, no)
  # onnxruntime has no kernel for bools.
  no = graph.node('And', graph.node('Not', which), no)
  return graph.node('Or', graph.node('And', which, yes), no)


def _clamp(graph, names, equation):
  del equation
  low, x, high = names
  return graph.node('Min', graph.node('Max', x, low), high)


def _convert(graph, names, equation):
  (x,), old, new = (
    names,
    equation.invars[0].aval.dtype,
    equation.params['new_dtype'],
  )
  if old == new:
    return x
  if old == np.uint32 and new == np.int32:
    half = graph.constant(np.int64(WRAP // 2))
    whole = graph.constant(np.int64(WRAP))
    low = graph.node('Sub', x, whole)
    x = graph.node('Where', graph.node('Less', x, half), x, low)
  return graph.cast(x, new)


def _remainder(graph, names, equation):
  del equation
  return graph.node('Mod', *names, fmod=1)


def _copy(context, equation, values):
  del context, equation
  return values


def _number(graph, x):
  return graph.constant(np.float32(x))


RULES = (
  {
    name: _plain(operator)
    for name, operator in {
      'abs': 'Abs',
      'add': 'Add',
      'add_any': 'Add',
      'ceil': 'Ceil',
      'cos': 'Cos',
      'div': 'Div',
      'eq': 'Equal',
      'erf': 'Erf',
      'exp': 'Exp',
      'floor': 'Floor',
      'ge': 'GreaterOrEqual',
      'gt': 'Greater',
      'le': 'LessOrEqual',
      'log': 'Log',
      'logistic': 'Sigmoid',
      'lt': 'Less',
      'mul': 'Mul',
      'neg': 'Neg',
      'pow': 'Pow',
      'sign': 'Sign',
      'sin': 'Sin',
      'sqrt': 'Sqrt',
      'sub': 'Sub',
      'tanh': 'Tanh',
    }.items()
  }
  | {
    'and': _by_type('And', 'BitwiseAnd'),
    'bitcast_convert_type': elementwise(_bitcast),
    'clamp': elementwise(_clamp),
    'convert_element_type': elementwise(_convert),
    'erfc': elementwise(_erfc),
    'exp2': elementwise(_exp2),
    'expm1': elementwise(_expm1),
    'integer_pow': elementwise(_integer_pow),
    'is_finite': elementwise(_is_finite),
    'log1p': elementwise(_log1p),
    'max': _by_type('Or', 'Max'),
    'min': _by_type('And', 'Min'),
    'ne': elementwise(_not_equal),
    'not': _by_type('Not', 'BitwiseNot'),
    'or': _by_type('Or', 'BitwiseOr'),
    'rem': elementwise(_remainder),
    'rsqrt': elementwise(_rsqrt),
    'select_n': elementwise(_select),
    'shift_left': elementwise(_shift_left),
    'square': elementwise(_square),
    'xor': _by_type('Xor', 'BitwiseXor'),
  }
  | dict.fromkeys(
    ('copy', 'copy_p', 'name', 'optimization_barrier', 'stop_gradient'), _copy
  )
)
