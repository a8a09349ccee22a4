"""The mesh by shard_map, compared with XLA's own partitioner.

The training step is one function. On a mesh it runs under `jax.shard_map`, and
communicates where its code says so (parallel/many_devices.py). Here it is also
jitted as it is on one device, with the same shardings of parameters,
optimizer and batch, and constraints on the parameters and the activations of
each layer: XLA decides what to send. Virtual devices of a CPU; memory and
bytes are read from the programs, no time is taken.

  python -m benchmarks.run --suite=partitioner          4 minutes on 2 cores
"""

import contextlib

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

DEVICES = 8
FLAGS = f'--xla_force_host_platform_device_count={DEVICES}'
FORMS = {
  'data 8': {'data': 8},
  'fsdp 8, ZeRO 1': {'data': 1, 'fsdp': 8, 'zero': 1},
  'fsdp 8, ZeRO 2': {'data': 1, 'fsdp': 8, 'zero': 2},
  'fsdp 8, ZeRO 3': {'data': 1, 'fsdp': 8},
  'data 2, tensor 4': {'data': 2, 'tensor': 4},
  'data 2, fsdp 2, tensor 2': {'data': 2, 'fsdp': 2, 'tensor': 2},
}
WIDTH, LAYERS, ROWS, LENGTH = 256, 6, 32, 512
CELLS = {
  'attention': {'heads': 4, 'head_width': 64},
  'simple_rnn': {'heads': 4, 'key_width': 32, 'value_width': 64},
}
KINDS = {  # name: cell, recurrence.impl
  'attention': ('attention', 'auto'),
  'simple_rnn, chunked': ('simple_rnn', 'chunked'),
  'simple_rnn, native': ('simple_rnn', 'native'),
}


def cases(quick: bool) -> list[case.Case]:
  """Each form of each kind of layer."""
  return [
    case.Case(
      f'{kind}: {form}',
      'suites.partitioner.compare',
      {'cell': cell, 'impl': impl, 'mesh': mesh},
      0,
      {'XLA_FLAGS': FLAGS},
    )
    for kind, (cell, impl) in [*KINDS.items()][: 1 if quick else None]
    for form, mesh in [*FORMS.items()][: 1 if quick else None]
  ]


def compare(cell: str, impl: str, mesh: tables.Row) -> tables.Row:
  """Memory and bytes sent of both programs, of a device.

  Args:
    cell: a file of rnn_jax/cells.
    impl: how its recurrence is computed.
    mesh: keys of the config's section `mesh`.
  """
  result = {'devices': DEVICES}
  for name, partitioned in {
    'shard_map': contextlib.nullcontext,
    'xla': _by_xla,
  }.items():
    with partitioned():
      temporaries, sent = _compile(cell, impl, mesh)
    result |= {f'{name}_temp_bytes': temporaries, f'{name}_sent_bytes': sent}
  return result


def _compile(cell, impl, mesh):
  import jax

  from rnn_jax import config as config_lib
  from rnn_jax.data.text import tokenizer
  from rnn_jax.parallel import mesh as mesh_lib
  from rnn_jax.profiling import collectives
  from rnn_jax.system import target
  from rnn_jax.tasks import language_modeling
  from rnn_jax.training import programs as programs_lib

  raw = config_lib.default(cell)
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='packed')
  raw.model.update(width=WIDTH, mlp_width=2 * WIDTH, layers=LAYERS)
  raw.cell.update(CELLS[cell])
  raw.recurrence.impl = impl
  raw.mesh.update(mesh)
  config = config_lib.parse(raw)
  task = language_modeling.make(config, tokenizer.Bytes())
  placed = mesh_lib.make(config.mesh, jax.devices())
  programs = programs_lib.Programs(task, config, placed)
  compiled = programs.compile_train(ROWS, LENGTH)
  sent = collectives.wire_bytes(compiled.as_text())
  return target.memory(compiled).temporaries, sum(sent.values())


@contextlib.contextmanager
def _by_xla():
  """Programs of a mesh are those of one device, with constraints."""
  from unittest import mock

  import flax.linen as nn
  import jax

  from rnn_jax.models import blocks
  from rnn_jax.ops import devices
  from rnn_jax.parallel import fsdp
  from rnn_jax.parallel import placement
  from rnn_jax.parallel import rules

  def run(where, function, inputs, outputs):
    del inputs

    class Constrained(devices.OneDevice):
      shards_parameters = gathers_parameters = where.mesh.shape['fsdp'] > 1

      def gather(self, params, logical_axes):
        """A layer's parameters: whole, but for what `tensor` shards."""

        def constrain(x, axes):
          spec = where.rules.state_spec(axes.partition('+')[0])
          sharding = rules.sharding(where.mesh, spec)
          return jax.lax.with_sharding_constraint(x, sharding)

        names = fsdp.logical_axes(params, logical_axes)
        return jax.tree.map(constrain, params, names)

    rows = jax.sharding.PartitionSpec(rules.ROWS)
    activations = rules.sharding(where.mesh, rows)

    def constrain(call, args, kwargs, context):
      if not isinstance(context.module, blocks.Block):
        return call(*args, **kwargs)
      if context.method_name != '__call__':
        return call(*args, **kwargs)
      x, *rest = args
      x = jax.lax.with_sharding_constraint(x, activations)
      x, state = call(x, *rest, **kwargs)
      return jax.lax.with_sharding_constraint(x, activations), state

    def constrained(*args):
      with devices.use(Constrained()), nn.intercept_methods(constrain):
        results = function(*args)
      shardings = jax.tree.map(
        lambda spec: rules.sharding(where.mesh, spec),
        outputs,
        is_leaf=lambda x: isinstance(x, jax.sharding.PartitionSpec),
      )
      return jax.tree.map(
        jax.lax.with_sharding_constraint,
        results,
        jax.tree.broadcast(shardings, results),
      )

    return constrained

  with mock.patch.object(placement.Placement, 'run', run):
    yield


def _mib(key):
  return lambda row: f'{row[key] / 2**20:,.0f} MiB'


COLUMNS = {
  'temporaries, shard_map': _mib('shard_map_temp_bytes'),
  'temporaries, XLA': _mib('xla_temp_bytes'),
  'sent per step, shard_map': _mib('shard_map_sent_bytes'),
  'sent per step, XLA': _mib('xla_sent_bytes'),
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table for each kind of layer."""
  for kind in KINDS:
    chosen = tables.with_prefix(rows, f'{kind}: ')
    if chosen:
      yield f'**{kind}**'
      yield tables.by_row('mesh', chosen, COLUMNS)
