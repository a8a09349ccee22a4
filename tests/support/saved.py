"""A training state of every kind of leaf, saved at steps 1 to 3."""

import functools
import typing

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.runs.checkpoints import sections

OPTIMIZER = optax.chain(
  optax.clip_by_global_norm(1.0),
  optax.adamw(
    optax.cosine_decay_schedule(1e-3, 100), mask={'w': True, 'b': False}
  ),
)


class Carry(typing.NamedTuple):
  memory: jax.Array
  ring: tuple[jax.Array, ...]


@functools.cache
def make_state(seed):
  rng = np.random.default_rng(seed)
  w, b, m = jax.device_put([*np.float32(rng.normal(size=(3, 24, 40)))])
  params = {'w': w, 'b': b}
  return {
    'params': params,
    'optimizer': update(params),
    'carry': [Carry(m.astype(jnp.bfloat16), (m, m > 0)), None],
    'key': jnp.array(rng.integers(2**32, size=2), 'uint32'),
    'skipped': jnp.int32(seed),
    'scale': jnp.asarray(np.float32(seed / 3)),
    'half': jnp.bfloat16(1 / 3),
  }


@jax.jit
def update(params):
  return OPTIMIZER.update(params, OPTIMIZER.init(params), params)[1]


def make_iterator(taken=0):
  iterator = iter(grain.MapDataset.range(1000).shuffle(3).to_iter_dataset())
  for _ in range(taken):
    next(iterator)
  return iterator


def like(state):
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
    state,
  )


def assert_same(got, want):
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    assert isinstance(a, jax.Array) and a.dtype == b.dtype
    assert a.sharding == b.sharding
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def save(writer, step, state, iterator=None, progress=None, **options):
  """Saves a state, the position of an iterator and a run's progress."""
  position = (iterator or make_iterator()).get_state()
  return writer.save(
    step,
    (*sections.of_state(state), *sections.RECORDS),
    state | {'data': position, 'progress': progress or {}},
    **options,
  )


def restore(reader, like=None, iterator=None, which='latest'):
  """Returns (step, state, progress); the iterator gets its position."""
  like = like or make_state(0)
  table = (*sections.of_state(like), *sections.RECORDS)
  step, values = reader.read(table, which)
  position, progress = values.pop('data'), values.pop('progress')
  if iterator is not None:
    iterator.set_state(position)
  return step, values, progress


def read(reader, like, which='best'):
  """Returns the step and some fields of a state."""
  return reader.read(sections.of_state(like), which)


def save_all(folder, keep, losses):
  """Saves step -> loss; each step's state is made of the step."""
  checkpoints = checkpoint.Checkpoints(folder, keep)
  for step, loss in losses.items():
    progress = {'held_out_loss': loss, 'evaluations': step}
    save(checkpoints, step, make_state(step), make_iterator(step), progress)
  checkpoints.close()
