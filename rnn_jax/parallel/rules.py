"""Which axis of the mesh each letter of the alphabet is split over."""

import jax

DATA_PARALLEL = {'B': 'data'}


def sharding(mesh, letters, rules=None):
  """The sharding of arrays whose leading axes are `letters`, as in 'BxL'.

  A letter without a rule, and every axis behind the named ones, is whole on
  each device; no letters at all replicate the array.
  """
  rules = DATA_PARALLEL if rules is None else rules
  axes = [rules.get(letter) for letter in letters.split('x') if letter]
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
