"""The axes of the mesh, as seen from inside a program that runs on all of it.

    data      copies of the model, each with its own rows
    fsdp      rows too; what is kept of the model is cut over it as well
    pipe      groups of layers
    sequence  stretches of time
    tensor    heads, columns of the MLP, vocabulary

A step runs under `jax.shard_map` over all of them: each device has the same
model with fewer rows, layers, steps and heads, and what devices tell each other
is written where they do. Outside of such a program every axis has size 1.
"""

import jax

NAMES = ('data', 'fsdp', 'pipe', 'sequence', 'tensor')


def size(name: str) -> int:
  """Returns how many devices there are along an axis; 1 outside of a mesh."""
  try:
    return jax.lax.axis_size(name)
  except NameError:
    return 1


def index(name: str) -> jax.Array | int:
  """Returns where this device stands along an axis; 0 outside of a mesh."""
  return jax.lax.axis_index(name) if size(name) > 1 else 0
