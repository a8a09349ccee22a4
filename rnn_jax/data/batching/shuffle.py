"""Random numbers and orders as functions of their arguments, in NumPy.

    hashed(seed, ...)           a number of 64 bits for each element
    permuted(at, count, key)    where a permutation of range(count) takes `at`

Nothing is drawn in sequence, so what belongs to an epoch, an example or a place
in an order is computed from these alone. `hashed` is the finalizer of
SplitMix64; `permuted` is a Feistel network on the fewest bits that hold
`count`, repeated for places that it takes outside.
Sources: Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014;
Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002.
"""

import numpy as np
import numpy.typing as npt

STEP = np.uint64(0x9E3779B97F4A7C15)
FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ROUNDS = 6


def hashed(*columns: npt.ArrayLike) -> np.ndarray:
  """Returns uint64 numbers that depend on all columns, integers or arrays."""
  number = np.zeros((), np.uint64)
  with np.errstate(over='ignore'):
    for column in columns:
      given = np.asarray(column).astype(np.int64).view(np.uint64)
      number = _mixed((number + STEP) ^ given)
  return number


def key(*columns: npt.ArrayLike) -> np.ndarray:
  """Returns keys of `permuted` that depend on all columns."""
  return hashed(*columns).view(np.int64)


def permuted(at: np.ndarray, count: int, key: npt.ArrayLike) -> np.ndarray:
  """Returns where permutations of range(count) take the places `at`.

  Args:
    at: places, from 0 to count - 1.
    count: of places.
    key: of the permutation; one for all places, or of each.
  """
  bits = max(int(count - 1).bit_length(), 2)
  low = np.uint64(bits // 2)
  masks = (
    np.uint64(2 ** (bits - bits // 2) - 1),
    np.uint64(2 ** (bits // 2) - 1),
  )
  keys = [np.broadcast_to(hashed(key, n), at.shape) for n in range(ROUNDS)]
  made = at.astype(np.uint64)
  todo = np.arange(len(made))
  while len(todo):
    made[todo] = _network(made[todo], [k[todo] for k in keys], low, masks)
    todo = todo[made[todo] >= count]
  return made.astype(np.int64)


def _network(place, keys, low, masks):
  """Exchanges the upper and the lower bits, each mixed into the other."""
  upper, lower = place >> low, place & masks[1]
  with np.errstate(over='ignore'):
    for n, key in enumerate(keys):
      if n % 2:
        lower = lower ^ (_mixed(upper + key) & masks[1])
      else:
        upper = upper ^ (_mixed(lower + key) & masks[0])
  return (upper << low) | lower


def _mixed(number):
  number = (number ^ (number >> np.uint64(30))) * FACTORS[0]
  number = (number ^ (number >> np.uint64(27))) * FACTORS[1]
  return number ^ (number >> np.uint64(31))
