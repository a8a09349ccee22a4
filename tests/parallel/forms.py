"""Training steps of small models on meshes of virtual devices."""

import tempfile

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import placement
from rnn_jax.profiling import collectives
from rnn_jax.profiling import workload
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import train_state
from rnn_jax.training.memory import batch_size
from tests.support import saved
from tests.support import virtual

ROWS, LENGTH, STEPS = 16, 16, 3
SAVED = 2  # the step of a checkpoint
CELLS = {
  'simple_rnn': {'heads': 4, 'key_width': 4, 'value_width': 4},
  'gla': {'heads': 4, 'key_width': 4, 'value_width': 4, 'rank': 4},
  'attention': {'heads': 4, 'kv_heads': 2, 'head_width': 4, 'biases': True},
  'rwkv7': {'heads': 4, 'key_width': 4, 'value_width': 4, 'rank': 4}
  | {'value_residual': True},
  'mamba': {
    'inner_width': 8,
    'key_width': 4,
    'rank': 2,
    'selection_norm': True,
  },
}
# Patterns of cells, a layer each: of steps through a row, in both directions,
# and of whole rows.
STEPPED = 'gru, lstm and rhn'
LINEAR = 'gla, mamba, qrnn and attention'
PATTERNS = {
  STEPPED: ('gru', 'lstm', 'rhn'),
  LINEAR: ('gla', 'mamba', 'qrnn', 'attention'),
}
MLPS = {'simple_rnn': 'channel_mix', 'rwkv7': 'swiglu'}
# The state goes from batch to batch, that of the MLP too.
CARRIED = 'simple_rnn, carried'
# Its matrices are frozen, in 8 bits, and changed by adapters.
ADAPTED = 'min_lstm, adapted'
ONE = {'data': 1}
FORMS = {
  'zero 1': {'data': 2, 'fsdp': 4, 'zero': 1},
  'zero 2': {'data': 2, 'fsdp': 4, 'zero': 2},
  'zero 3': {'data': 2, 'fsdp': 4},
  'zero 3 and tensor': {'data': 2, 'fsdp': 2, 'tensor': 2},
  'zero 3 and pipe': {'data': 1, 'fsdp': 2, 'pipe': 2, 'micro_batches': 4},
  'copies and 1f1b': {
    'data': 2,
    'pipe': 2,
    'micro_batches': 4,
    'schedule': '1f1b',
  },
  'sequence and tensor': {'data': 1, 'sequence': 2, 'tensor': 2},
  'zero 3, sequence and tensor': {
    'data': 1,
    'fsdp': 2,
    'sequence': 2,
    'tensor': 2,
  },
}
# Each form has a cell, and each cell a form: what a form does to a cell it does
# to all. Layers are gathered by a cell's own logical axes, so zero 3 has each
# cell that has some. Blocks of `rwkv7` and of `simple_rnn` have norms and an
# MLP, whose matrices are sharded too.
FORMS_OF = {
  'min_lstm': ('zero 1', 'zero 2', 'zero 3', 'copies and 1f1b'),
  'rwkv7': ('zero 3 and tensor',),  # all heads read its `shift`
  STEPPED: ('zero 3 and pipe',),
  LINEAR: ('zero 3, sequence and tensor',),  # all channels of mamba make k, q
  ADAPTED: ('zero 3',),
  CARRIED: ('zero 3 and pipe', 'sequence and tensor'),
}
# In this one the state begins on the mesh; in others it is that of one device.
BEGUN = CARRIED, 'zero 3 and pipe'
# An evaluation follows: others read rows, gather and sum as one of these does.
EVALUATED = (
  BEGUN,
  (CARRIED, 'sequence and tensor'),
  ('min_lstm', 'copies and 1f1b'),
)


def config(cell, mesh, width=16):
  """Returns the Config of a small model of that cell on a mesh."""
  carried, adapted = cell == CARRIED, cell == ADAPTED
  cell = cell.removesuffix(', carried').removesuffix(', adapted')
  cells = PATTERNS.get(cell, ())
  raw = config_lib.default(cells or cell)
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='stream')
  raw.data.carry_state = carried
  raw.model.update(width=width, layers=2 * len(cells or [cell]), biases=True)
  if cell in MLPS:
    raw.model.update(mlp=MLPS[cell], mlp_width=32, norm='layer')
  else:
    raw.model.update(block='plain', mlp_width=0)  # the smallest programs
  for name in cells:
    raw.cell[name].update(CELLS.get(name, {}))
  raw.cell.update({} if cells else CELLS.get(cell, {}))
  if cell == STEPPED:  # a second cell in each layer reads backwards
    raw.task.name, raw.model.bidirectional = 'tagging', True
    raw.data.update(layout='padded', tokenizer='characters')
  if adapted:
    raw.adapters.update(rank=2, base='int8')
  raw.mesh.update(mesh)
  raw.schedule.warmup_steps = 2
  # A small program, which doesn't turn rounding into whole steps as Adam does.
  raw.optimizer.update(name='sgd', learning_rate=0.1)
  return config_lib.parse(raw)


def programs(parsed):
  """Returns the Programs of a Config, on the first devices."""
  sizes = [getattr(parsed.mesh, name) for name in axes.NAMES]
  devices = jax.devices()[: int(np.prod(sizes))]
  return programs_lib.from_config(parsed, tokenizer.Bytes(), devices)


def draw(parsed, made, n):
  """Returns batch n; some of its rows continue those of the batch before."""
  batch = workload.random_batch(parsed, made.task.model.vocabulary, ROWS, n)
  batch.starts_BxL[::2, 0] = 0
  batch.starts_BxL[::3, LENGTH // 2 + 1] = 1
  return mesh_lib.put(batch, made.batch_sharding)


def train_on(parsed, made, step, state, numbers):
  """Trains on the batches of these numbers. Returns (state, losses)."""
  losses = []
  for n in numbers:
    state, values = jax.block_until_ready(step(state, draw(parsed, made, n)))
    losses.append(float(values['sums']['loss']))
  return state, losses


def draw_state(made, rows=ROWS):
  """Returns a state with NumPy's numbers: initializers compile slowly."""
  rng = np.random.default_rng(0)

  def parameter(x):
    if np.issubdtype(x.dtype, np.integer):
      return rng.integers(-3, 4, x.shape, x.dtype)
    return rng.normal(scale=0.3, size=x.shape).astype(x.dtype)

  shapes = jax.eval_shape(lambda: made.states.init(rows))
  state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
  params = jax.tree.map(parameter, shapes.params)
  return state.replace(params=params, rate_scale=np.float32(1))


class Trained:
  """A few steps of a cell on a mesh, from the first state of one device.

  Attributes:
    first, saved, last: states on the host, at steps 0, SAVED and STEPS.
    losses: of the steps, and of an evaluation.
  """

  def __init__(self, cell, form='', one=None):
    self.parsed = config(cell, FORMS.get(form, ONE))
    self.made = programs(self.parsed)
    self.step = self.made.compile_train(ROWS, LENGTH)
    ((self.shardings, _), _) = self.step.input_shardings
    if cell == BEGUN[0] and form in ('', BEGUN[1]):
      state = self.made.states.init(ROWS)
    else:
      state = self.place(one.first if one else draw_state(self.made))
    self.first = jax.device_get(state)
    state, self.losses = self.train(state, range(SAVED))
    self.saved = jax.device_get(state)
    state, losses = self.train(state, range(SAVED, STEPS))
    self.losses += losses
    self.last = jax.device_get(state)
    forms = FORMS_OF[cell] if form == '' else (form,)
    if any((cell, form) in EVALUATED for form in forms):
      batch = draw(self.parsed, self.made, STEPS)
      carry = self.made.states.init_carry(ROWS)
      _, sums = self.made.evaluate_step(state.params, carry, batch)
      self.losses.append(float(sums['loss']))

  def train(self, state, numbers):
    return train_on(self.parsed, self.made, self.step, state, numbers)

  def place(self, state):
    return jax.device_put(state, self.shardings)


def few_steps(parsed, draw_batch, first=None):
  """Trains for some steps, on `draw_batch(n)`.

  Returns (first state, parameters, sums of each step, parameters on devices).
  """
  made = programs(parsed)

  def draw(n):
    return mesh_lib.put(draw_batch(n), made.batch_sharding)

  batch = draw(0)
  rows, length = batch.weights_BxL.shape
  first = first or draw_state(made, rows)
  step = made.compile_train(rows, length)
  ((shardings, _), _) = step.input_shardings
  state, sums = jax.device_put(first, shardings), []
  for n in range(STEPS):
    state, values = jax.block_until_ready(step(state, draw(n)))
    sums.append(values['sums'])
  sums = jax.tree.map(float, jax.device_get(sums))
  return first, jax.device_get(state.params), sums, state.params


def restored(folder, before, after):
  """Saves a state of a mesh, and restores it on another one.

  Returns (whether it is the same, the parameters after the steps that follow).
  """
  folder = checkpoint.Checkpoints(folder, 1)
  placed = before.place(before.saved)
  saved.save(folder, SAVED, placed.entries())
  folder.wait()
  like = jax.tree.map(
    lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
    placed,
    jax.tree.broadcast(after.shardings, placed),
  )
  _, entries, _ = saved.restore(folder, like.entries())
  folder.close()
  state = train_state.TrainState(**entries)
  same = jax.tree.map(np.array_equal, before.saved, jax.device_get(state))
  state, _ = after.train(state, range(SAVED, STEPS))
  return jax.tree.all(same), jax.device_get(state.params)


def largest_difference(a, b):
  """Returns the largest of two trees, or lists of numbers."""
  differences = jax.tree.map(lambda x, y: np.max(np.abs(x - y)), a, b)
  return float(max(jax.tree.leaves(differences)))


def communication(compiled):
  """Returns the collectives of a step: {opcode: bytes of each}."""
  sizes = {}
  for operation in collectives.collectives(compiled.as_text()):
    sizes.setdefault(operation.opcode, []).append(operation.bytes)
  return sizes


def state_bytes(zero):
  """Returns bytes of one of eight devices, and of a single device."""
  mesh = {'data': 1, 'fsdp': virtual.DEVICES, 'zero': zero}
  made = programs(config('min_lstm', mesh, width=256))
  state = jax.eval_shape(lambda: made.states.init(ROWS))
  where, params = made.states.placement, state.params
  parts = {
    'parameters': (params, where.shardings('parameters')),
    'gradients': (params, where.shardings('gradients')),
    'optimizer': (state.opt_state, where.optimizer_shardings(state.opt_state)),
  }
  return {
    name: (placement.device_bytes(*part), batch_size.tree_bytes(part[0]))
    for name, part in parts.items()
  }


def compare(cell, forms):
  """Returns ({form: Trained}, {case: differences from one device})."""
  one = Trained(cell)
  trained, results = {'': one}, {}
  for form in forms:
    other = trained[form] = Trained(cell, form, one)
    losses = one.losses[: len(other.losses)]
    results[f'{cell}, {form}'] = {
      'params': largest_difference(one.last.params, other.last.params),
      'losses': largest_difference(losses, other.losses) / losses[0],
      'collectives': communication(other.step),
    }
  return trained, results


def measure():
  """Returns all that test_forms.py compares."""
  results = {'bytes': {zero: state_bytes(zero) for zero in range(4)}}
  for cell, forms in FORMS_OF.items():
    if cell != CARRIED:
      results |= compare(cell, forms)[1]
  return results


def measure_carried():
  """Returns all that test_carried.py compares."""
  trained, results = compare(CARRIED, FORMS_OF[CARRIED])
  one, pipe, sequence = trained.values()
  results['restored'] = []
  for before, after in ((pipe, one), (pipe, sequence), (sequence, pipe)):
    with tempfile.TemporaryDirectory() as folder:
      same, params = restored(folder, before, after)
    difference = largest_difference(one.last.params, params)
    results['restored'].append((same, difference))
  return results
