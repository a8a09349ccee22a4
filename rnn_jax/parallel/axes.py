"""The axes of the mesh, seen from inside a program that runs on all of it.

    data      copies of the model, each with its own rows
    fsdp      rows too; parameters, or what goes with them, are sharded over it
    expert    rows too; a layer's experts are sharded over it
    pipe      groups of layers
    sequence  shards of each row, along time
    tensor    heads, columns of the MLP, vocabulary

A step runs under `jax.shard_map` over all of them: each device has the same
model with fewer rows, layers, steps and heads, and communication is explicit.
Outside of such a program every axis has size 1.
"""

import jax

NAMES = ('data', 'fsdp', 'expert', 'pipe', 'sequence', 'tensor')


def size(name: str) -> int:
  """Returns the number of devices along an axis; 1 outside of a mesh."""
  try:
    return jax.lax.axis_size(name)
  except NameError:
    return 1


def index(name: str) -> jax.Array | int:
  """Returns this device's position along an axis; 0 outside of a mesh."""
  return jax.lax.axis_index(name) if size(name) > 1 else 0
