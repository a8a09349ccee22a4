"""Compares each implementation of the main operations with float64.

gla.py checks the gated linear recurrence, delta.py the delta rule and the
general form of such a recurrence: outputs, final state and every gradient.
products.py checks products with packed matrices, in each of their formats.
"""

from collections.abc import Iterator

import jax

from rnn_jax import errors
from rnn_jax.native import library
from rnn_jax.selfcheck import base
from rnn_jax.selfcheck import delta
from rnn_jax.selfcheck import gla
from rnn_jax.selfcheck import products

ROW = '{:<8} {:<12} {:>4} {:>7} {:<5} {:<7} {:<11} {:<9} {:>8} {:>8}  {}'
HEADER = ROW.format(
  'op',
  'impl',
  'L',
  'KxP',
  'decay',
  'read',
  'inputs',
  'operands',
  'error',
  'bound',
  'worst',
)
OPS = {
  'gla': gla,
  'delta': delta,
  'general': delta,
  products.OP: products,
}


def cases() -> Iterator[base.Case]:
  """Yields each implementation that this device can run, at several shapes."""
  yield from gla.cases()
  yield from delta.cases()
  yield from products.cases()


def check(case: base.Case) -> base.Result:
  """Runs one case."""
  return OPS[case.op].check(case)


def run(impl: str = '') -> bool:
  """Runs the cases of an implementation, '' for all, and prints a table.

  Returns:
    Whether all errors are within their bounds.

  Raises:
    InputError: this device has no such implementation.
  """
  chosen = [case for case in cases() if impl in ('', case.impl)]
  if not chosen:
    names = sorted({case.impl for case in cases()})
    errors.refuse('--impl', impl, f'choose one of {names}')
  print(f'{jax.devices()[0].device_kind}, jax {jax.__version__}')
  print(library.describe(), flush=True)
  print(HEADER)
  passed = 0
  for case in chosen:
    result = check(case)
    passed += result.passed
    print(_row(case, result), flush=True)
  print(f'{passed} of {len(chosen)} within their bounds')
  return passed == len(chosen)


def _row(case, result):
  return ROW.format(
    case.op,
    case.impl,
    case.L,
    f'{case.K}x{case.P}',
    case.decay,
    case.read,
    case.dtype,
    case.operands,
    f'{result.error:.1e}',
    f'{result.bound:.1e}',
    result.where if result.passed else f'WRONG: {result.where}',
  )
