"""Updates of states that are sharded over virtual devices."""

import dataclasses

import jax
import numpy as np

from rnn_jax.data.text import tokenizer
from rnn_jax.parallel import placement
from rnn_jax.training import optimizer
from rnn_jax.training import programs as programs_lib
from tests.parallel import forms
from tests.support import virtual
from tests.training.optimizers import following

NAMES = ('lamb', 'muon')  # norms of matrices, and whole ones
MESH = {'data': 1, 'fsdp': 4, 'zero': 1, 'tensor': 2}
OF_STEPS = {
  'schedule_free': {'schedule_free': MESH},
  'kfac': {'kfac': {'data': 2, 'sequence': 4}},
  'adamw': {'adamw, averaged': MESH},
}
CHANGES = {'adamw': {'ema_decay': 0.9}}
STEPS = 2
# The smallest program; K-FAC's factors are summed over shards of rows, too.
CELLS = {'kfac': forms.CARRIED}


def measure():
  """Returns {optimizer: (difference of parameters from those of one device,
  fraction of the state that a device has)}."""
  results = {name: updated(name) for name in NAMES}
  for name, meshes in OF_STEPS.items():
    results |= trained(name, meshes)
  return results


def updated(name):
  """Runs only updates, with random gradients."""
  made = forms.programs(forms.config('simple_rnn', MESH))
  where = made.states.placement
  rng = np.random.default_rng(0)
  params, *gradients = (
    jax.tree.map(lambda x: np.float32(rng.normal(size=x.shape)), where.shapes)
    for _ in range(STEPS + 1)
  )
  # Else Adam turns rounding into whole steps.
  settings = following.config(name, eps=1e-3)
  transform = optimizer.make(settings.optimizer, following.rate, where.stacked)
  state = jax.eval_shape(transform.init, where.shapes)
  sharding = where.optimizer_shardings(state)
  params_sharding = where.shardings('parameters')
  ends = []
  for place in ({}, {'out_shardings': (params_sharding, sharding)}):
    begin = jax.jit(lambda p: (p, transform.init(p)), **place)
    step = jax.jit(lambda p, s, g: _step(transform, p, s, g), **place)
    # Steps in flight hold threads that each other's collectives wait for.
    now = jax.block_until_ready(begin(params))
    for gradient in gradients:
      now = jax.block_until_ready(step(*now, gradient))
    ends.append(jax.device_get(now[0]))
  own = placement.device_bytes(state, sharding)
  whole = placement.device_bytes(state, where.replicated)
  return forms.largest_difference(*ends), own / whole


def _step(transform, params, state, gradient):
  updates, state = transform.update(gradient, state, params)
  return jax.tree.map(lambda p, u: p + u, params, updates), state


def first_state(made):
  """Returns drawn parameters, and the optimizer's own state of them."""
  state = forms.draw_state(made)
  own = jax.jit(made.states.optimizer.tx.init)(state.params)
  return state.replace(opt_state=jax.device_get(own))


def trained(name, meshes):
  """Runs whole steps, for gradients between two points or with factors."""
  ends, first = {}, None
  for label, mesh in {'': forms.ONE, **meshes}.items():
    count = virtual.DEVICES if label else 1
    settings = forms.config(CELLS.get(name, 'min_lstm'), mesh)
    own = following.config(name, eps=1e-3, **CHANGES.get(name, {}))
    settings = dataclasses.replace(
      settings, optimizer=own.optimizer, schedule=own.schedule
    )
    made = programs_lib.from_config(
      settings, tokenizer.Bytes(), jax.devices()[:count]
    )
    step = made.compile_train(forms.ROWS, forms.LENGTH)
    first = first or first_state(made)
    ((shardings, _), _) = step.input_shardings
    state = jax.device_put(first, shardings)
    state, _ = forms.train_on(settings, made, step, state, range(STEPS))
    ends[label] = jax.device_get(state.params)
  return {
    label: (forms.largest_difference(ends[''], ends[label]), None)
    for label in meshes
  }
