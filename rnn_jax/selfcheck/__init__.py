"""Compares each implementation of the recurrences with a float64 loop.

gla.py checks the gated linear recurrence, delta.py the delta rule and the
general form of such a recurrence: outputs, final state and every gradient.
"""

from collections.abc import Iterator

from rnn_jax.selfcheck import base
from rnn_jax.selfcheck import delta
from rnn_jax.selfcheck import gla

OPS = {'gla': gla, 'delta': delta, 'general': delta}


def cases() -> Iterator[base.Case]:
  """Yields each implementation that this device can run, at several shapes."""
  yield from gla.cases()
  yield from delta.cases()


def check(case: base.Case) -> base.Result:
  """Runs one case."""
  return OPS[case.op].check(case)
