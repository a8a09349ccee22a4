"""What tells XLA how much of a GPU's memory it has.

JAX reserves 75 % of it, and XLA's compiler orders a program for 76 %: where
that is too little, it computes activations again, however much is left. Both
follow from one fraction here.
"""

import os
from collections.abc import Mapping

FRACTIONS = 'XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION'
RESERVED = 0.75  # unless a variable says otherwise
LIMIT = 'xla_gpu_memory_limit_slop_factor'  # per cent of COMPILED
COMPILED = 0.8  # of the memory, for which XLA's compiler orders a program


def fraction() -> float:
  """Returns the fraction of a GPU's memory that JAX reserves."""
  return float(next(filter(None, map(os.environ.get, FRACTIONS)), RESERVED))


def variables(fraction: float, given: Mapping[str, str]) -> dict[str, str]:
  """Returns the variables for a fraction of a GPU's memory, in (0, 1].

  Both programs and the memory for them are made for it. The XLA_FLAGS that are
  `given` stay, and win.
  """
  limit = f'--{LIMIT}={round(100 * fraction / COMPILED)}'
  flags = f'{limit} {given.get("XLA_FLAGS", "")}'.strip()
  return {FRACTIONS[0]: str(fraction), 'XLA_FLAGS': flags}
