"""Pipelines of 2 and 4 stages on eight devices, and a program without stages.

A layer has all that can go wrong: parameters, a state, inputs of each row,
noise from a key, a norm that is NaN for the zeros of a bubble, and collectives
over another axis.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import devices
from rnn_jax.parallel import axes
from rnn_jax.parallel import pipeline
from rnn_jax.parallel import pipeline_flush

R, B, L, D = 4, 32, 4, 5
# (stages, M, devices along 'sequence'); if that is 1, 'data' is 2.
# As many micro-batches as stages, fewer, more.
CASES = ((2, 2, 1), (2, 1, 2), (4, 16, 1))
SPEC = jax.sharding.PartitionSpec


def table(stages, micro_batches, schedule):
  """Returns what each stage does, [slot][stage]: 'F3', 'B1' or '-'.

  A slot is the time of a forward or a backward pass of one micro-batch. A tick
  of 1F1B has a slot for each of the two, unless all stages would idle in it.
  """
  n, passes = stages, micro_batches + stages - 1

  def slot(name, numbers):
    named = (f'{name}{m}' if 0 <= m < micro_batches else '-' for m in numbers)
    return tuple(named)

  forward = [
    slot('F', [pipeline.forward_at(t, s) for s in range(n)])
    for t in range(passes)
  ]
  if schedule == 'gpipe':
    backward = [
      tuple(name.replace('F', 'B') for name in names)
      for names in reversed(forward)
    ]
    return (*forward, *backward)
  backward = [
    slot('B', [pipeline.backward_at(t, s, n) for s in range(n)])
    for t in range(n - 1, n - 1 + passes)
  ]
  both = zip(forward[n - 1 :], backward[:micro_batches], strict=True)
  steady = [names for pair in both for names in pair]
  return (*forward[: n - 1], *steady, *backward[micro_batches:])


def draw():
  """Returns (params, head, x, state, extra) of all layers and rows."""
  rng = np.random.default_rng(0)

  def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)

  names = ('starts', 'weights', 'targets')
  extra = {name: rng.random((B, L)).astype(np.float32) for name in names}
  params = {'kernel': normal(R, D, D) / 2, 'bias': normal(R, D)}
  return params, normal(D), normal(B, L, D), normal(R, B, D), extra


def layer(starts_BxL, key, x, inputs):
  number, params, state = inputs
  read = x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True))
  y = jnp.einsum('bld,de->ble', read, params['kernel'])
  y = y + params['bias'][None, None] + swap(x)
  y = y + state[:, None] * (1 - starts_BxL[..., None])
  y = jnp.tanh(y) * noise(key, number)
  return x + y, 0.5 * state + over_time(jnp.sum(y, 1))


def noise(key, number):
  """Returns a number in [1, 2) of a key; a generator compiles slowly."""
  data = jax.random.key_data(jax.random.fold_in(key, number))
  return 1 + (data[1] % 1024).astype(jnp.float32) / 1024


def swap(x):
  """Exchanges the first and the second half of the steps."""
  if axes.size('sequence') == 1:
    return jnp.roll(x, L // 2, 1)
  return jax.lax.ppermute(x, 'sequence', [(0, 1), (1, 0)])


def over_time(x):
  return x if axes.size('sequence') == 1 else jax.lax.psum(x, 'sequence')


def stage(params, x, state, extra, key):
  count = params['bias'].shape[0]
  numbers = axes.index('pipe') * count + jnp.arange(count)
  run = functools.partial(layer, extra['starts'], key)
  return jax.lax.scan(run, x, (numbers, params, state))


def loss(head, x, extra, key):
  errors = (jnp.einsum('bld,d->bl', x, head) - extra['targets']) ** 2
  value = jnp.sum(extra['weights'] * errors)
  return noise(key, R) * value, {'weight': jnp.sum(extra['weights'])}


def reference(count, shards):
  """Runs each row through all layers at once, in its micro-batch's noise."""
  numbers = np.arange(B) // (B // (shards * count)) % count
  return jax.device_get(_reference()(*draw(), numbers))


@functools.cache
def _reference():
  key = jax.random.key(1)

  def run(params, head, x, state, extra, numbers):
    def row(number, x, state, extra):
      own = jax.random.fold_in(key, number)
      y, new = stage(params, x[None], state[:, None], extra, own)
      return loss(head, y, extra, own), new[:, 0]

    extra = jax.tree.map(lambda a: a[:, None], extra)
    in_axes, out_axes = (0, 0, 1, 0), (0, 1)
    (values, sums), new = jax.vmap(row, in_axes, out_axes)(
      numbers, x, state, extra
    )
    return 0.5 * jnp.sum(values), (jax.tree.map(jnp.sum, sums), new)

  return jax.jit(jax.value_and_grad(run, (0, 1, 2, 3), has_aux=True))


def split(parts, x, axis):
  x = x.reshape(*x.shape[:axis], parts, -1, *x.shape[axis + 1 :])
  return jnp.moveaxis(x, axis, 0)


def by_gpipe(count, params, head, inputs):
  x, state = pipeline.gpipe(stage, params, inputs, count)

  def one(number, x, extra):
    return loss(head, x, extra, jax.random.fold_in(inputs.key, number))

  rows = functools.partial(split, count, axis=0)
  parts = jax.tree.map(rows, (x, inputs.extra))
  values, sums = jax.vmap(one)(jnp.arange(count), *parts)
  return jnp.sum(values), (jax.tree.map(jnp.sum, sums), state)


def by_1f1b(count, params, head, inputs):
  return pipeline_flush.objective(stage, loss, params, head, inputs, count)


FORMS = {'gpipe': by_gpipe, '1f1b': by_1f1b}


def program(form, stages, count, sequence=1, rows=2):
  """Returns the program of the gradients on a mesh, for `draw`'s arrays."""
  shape = (rows, 1, 1, stages, sequence, 1)
  placed = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
  mesh = jax.sharding.Mesh(placed, axes.NAMES)
  layers, timed = SPEC('pipe', 'data'), SPEC('data', 'sequence')
  specs = (SPEC('pipe'), SPEC(), timed, layers, timed)

  def objective(params, head, x, state, extra):
    inputs = devices.StageInputs(x, state, extra, jax.random.key(1))
    value, (sums, new) = FORMS[form](count, params, head, inputs)
    last = axes.index('pipe') == stages - 1
    value, sums = jax.tree.map(lambda a: jnp.where(last, a, 0), (value, sums))
    return 0.5 * value, (sums, new)

  def local(*arrays):
    run = jax.value_and_grad(objective, (0, 1, 2, 3), has_aux=True)
    (value, (sums, new)), gradients = run(*arrays)
    total = jax.lax.psum
    everywhere = ('data', 'pipe', 'sequence')
    value, sums, d_head = total((value, sums, gradients[1]), everywhere)
    d_params = total(gradients[0], ('data', 'sequence'))
    d_x, d_state = total(gradients[2], 'pipe'), total(gradients[3], 'sequence')
    return (value, (sums, new)), (d_params, d_head, d_x, d_state)

  out = ((SPEC(), (SPEC(), layers)), (specs[0], SPEC(), timed, layers))
  return jax.jit(
    jax.shard_map(
      local, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False
    )
  )


def temporaries(form, count):
  """Returns bytes of temporaries of two stages, 64 rows a micro-batch."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ('pipe',))
  params, head, *_ = draw()
  rows = 64 * count

  def local(params, head, x, state, extra):
    inputs = devices.StageInputs(x, state, extra, jax.random.key(1))
    if form == '1f1b':
      (_, (_, new)), gradients = pipeline_flush.one_forward_one_backward(
        stage, loss, params, head, inputs, count
      )
      return gradients, new

    def run(params, head, x):
      value, (_, new) = by_gpipe(
        count, params, head, inputs._replace(x_BxLxD=x)
      )
      return value, new

    return jax.grad(run, (0, 1, 2), has_aux=True)(params, head, x)

  layers = SPEC('pipe')
  specs = (layers, SPEC(), SPEC(), layers, SPEC())
  run = jax.shard_map(
    local, mesh=mesh, in_specs=specs, out_specs=layers, check_vma=False
  )
  shape = functools.partial(jax.ShapeDtypeStruct, dtype=np.float32)
  extra = {name: shape((rows, L)) for name in draw()[-1]}
  inputs = shape((rows, L, D)), shape((R, rows, D)), extra
  compiled = jax.jit(run).lower(params, head, *inputs).compile()
  return compiled.memory_analysis().temp_size_in_bytes


def ticks(traced):
  """Returns the lengths of a device's outermost loops."""
  (region,) = (e for e in traced.jaxpr.eqns if e.primitive.name == 'shard_map')
  eqns = region.params['jaxpr'].eqns
  calls = [e.params['call_jaxpr'] for e in eqns if 'call_jaxpr' in e.params]
  eqns = eqns + [e for call in calls for e in call.eqns]
  return [e.params['length'] for e in eqns if e.primitive.name == 'scan']


def measure(form, cases):
  """Returns results of each case, for the tests."""
  results = {}
  for stages, count, sequence in cases:
    rows = 3 - sequence
    traced = program(form, stages, count, sequence, rows).trace(*draw())
    compiled = traced.lower().compile()
    results[stages, count, sequence] = {
      'got': jax.device_get(compiled(*draw())),
      'wanted': reference(count, rows),
      'ticks': ticks(traced),
      'text': compiled.as_text(),
    }
  return results


def measure_gpipe():
  memory = [temporaries('gpipe', count) for count in (4, 16)]
  return measure('gpipe', CASES), memory


def measure_1f1b():
  memory = [temporaries('1f1b', count) for count in (4, 16)]
  return measure('1f1b', CASES), undifferentiated(), memory


def undifferentiated():
  """Returns the objective of two stages without gradients, and its loops."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ('pipe',))

  def local(params, head, *inputs):
    inputs = devices.StageInputs(*inputs, jax.random.key(1))
    value, (sums, state) = by_1f1b(4, params, head, inputs)
    return jax.lax.psum((value, sums), 'pipe'), state

  layers = SPEC('pipe')
  run = jax.shard_map(
    local,
    mesh=mesh,
    in_specs=(layers, SPEC(), SPEC(), layers, SPEC()),
    out_specs=(SPEC(), layers),
    check_vma=False,
  )
  traced = jax.jit(run).trace(*draw())
  return jax.device_get(traced.lower().compile()(*draw())), ticks(traced)


def error(got, wanted):
  """Returns the largest difference, relative to each array's largest number."""
  pairs = zip(*map(jax.tree.leaves, (got, wanted)), strict=True)
  return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
