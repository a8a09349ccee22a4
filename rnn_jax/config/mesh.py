"""The section `mesh` of the config, and its rules that don't need devices."""

import dataclasses
import math
from typing import Any

from rnn_jax import errors
from rnn_jax.config import pattern
from rnn_jax.config.values import option
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import rules as rules_lib


@dataclasses.dataclass(frozen=True)
class Mesh:
  """The sizes of the mesh's axes (parallel/axes.py), and what they shard.

  One size may be -1: all devices that the others leave.
  """

  data: int = -1  # copies of the model, each with its rows of a batch
  fsdp: int = 1  # rows, and the train state as `zero` says
  # Rows, and the experts of a layer.
  expert: int = option(1, needs='model.experts.count')
  # Groups of layers.
  pipe: int = option(1, excludes=('model.shared_layers', 'model.experts.count'))
  sequence: int = option(  # shards of time
    1,
    excludes=(
      'task.per_token=False',
      'remat.segment',
      "recurrence.impl='scan'",
    ),
  )
  tensor: int = 1  # heads, columns of the MLP, vocabulary
  zero: int = 3  # 1: the optimizer's state, 2: and gradients, 3: and parameters
  rules: tuple[str, ...] = (  # LOGICAL_AXIS=MESH_AXIS, see parallel/rules.py
    'R=pipe',
    'D=fsdp',
    'S=fsdp',
    'E=expert',
    'H=tensor',
    'F=tensor',
    'V=tensor',
  )
  # Of a device's rows; 0: `pipe`.
  micro_batches: int = option(0, minimum=0, needs='mesh.pipe>1')
  # '1f1b' needs less memory.
  schedule: str = option(
    'gpipe', choices='parallel.pipeline:SCHEDULES', needs='mesh.pipe>1'
  )
  # Of gradients summed over data: 'int8' or 'top_k'.
  compression: str = option('', choices=('', 'int8', 'top_k'))
  top_k_share: float = option(  # fraction of a gradient's numbers per step
    0.01, above=0, maximum=1, needs="mesh.compression='top_k'"
  )

  def check(self, config: Any) -> None:
    """Checks the section against the rest of a Config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    sizes = {name: getattr(self, name) for name in axes.NAMES}
    for name, size in sizes.items():
      if size < 1 and size != mesh_lib.REST:
        _refuse(name, size, 'give 1 or more, or -1 for the remaining devices')
    rest = [name for name in sizes if sizes[name] == mesh_lib.REST]
    if len(rest) > 1:
      keys = ' and '.join(f'mesh.{name}' for name in rest)
      raise errors.InputError(f'{keys} are -1: only one can be the rest')
    if not 0 <= self.zero <= max(rules_lib.STAGES.values()):
      _refuse('zero', self.zero, 'give 0, 1, 2 or 3')
    rules = rules_lib.parse(self.rules, self.zero)
    if rest and rest[0] not in rules_lib.STORAGE:
      _refuse(rest[0], -1, 'give its size: only data or fsdp can be the rest')
    _check_expert(config)
    _check_tensor(config, rules)
    _check_pipe(config)
    _check_sequence(config)
    _check_moments(config, rules)
    _check_compression(self, rules)


def _check_expert(config):
  size, experts = config.mesh.expert, config.model.experts.count
  if experts % size:
    _refuse('expert', size, f'it must divide model.experts.count={experts}')


def _check_tensor(config, rules):
  size = config.mesh.tensor
  if size == 1:
    return
  experts = config.model.experts
  lengths = [
    ('F', 'model.mlp_width', config.model.mlp_width),
    ('F', 'model.experts.shared_width', experts.shared_width),
    ('F', 'model.experts.dense_width', experts.dense_width),
  ]
  for section, cell in pattern.sections(config.cell):
    lengths.append(('H', f'{section}.heads', getattr(cell, 'heads', 0)))
    if getattr(cell, 'attention', 'none') != 'none':
      _refuse('tensor', size, f'{section}.attention reads all heads: give 1')
  for axis, key, length in lengths:
    if 'tensor' in rules.axes(axis) and length % size:
      _refuse('tensor', size, f'it must divide {key}={length}')


def _check_pipe(config):
  size, model, schedule = config.mesh.pipe, config.model, config.mesh.schedule
  if size == 1:
    return
  if schedule == '1f1b' and not config.task.writes_text:
    _refuse(
      'schedule', schedule, f"task.name={config.task.name!r} needs 'gpipe'"
    )
  if schedule == '1f1b' and config.remat.segment:
    _refuse('schedule', schedule, "remat.segment needs 'gpipe'")
  if model.periods % size:
    of = f' / {len(model.cells)}, the periods of model.cells'
    remedy = f'it must divide model.layers={model.layers}'
    _refuse('pipe', size, remedy + of * bool(model.cells))
  if model.embedding_width not in (0, model.width):
    _refuse(
      'pipe',
      size,
      f'all layers must be alike, and model.embedding_width='
      f'{model.embedding_width} makes the first one differ',
    )


def _check_sequence(config):
  size, data = config.mesh.sequence, config.data
  if size == 1:
    return
  if (lengths := data.row_lengths()) is None:
    _refuse(
      'sequence',
      size,
      f'data.layout={data.layout!r} needs data.boundaries that it divides',
    )
  lengths = [data.length, *lengths, *data.length_schedule]
  lengths += [config.evaluate.length] * bool(config.evaluate.length)
  if wrong := [n for n in lengths if n % size]:
    _refuse('sequence', size, f'it must divide the rows of {wrong[0]} tokens')


def _check_moments(config, rules):
  """Refuses blocks of moments that would span shards of a tensor."""
  sharded = {axis for _, names in rules.pairs for axis in names}
  sharded -= {*rules_lib.STORAGE} if not config.mesh.zero else set()
  sizes = [getattr(config.mesh, axis) for axis in sharded]
  if config.optimizer.blockwise_state and math.prod(sizes) != 1:
    raise errors.InputError(
      "optimizer.moments='int8': its blocks would span the shards of several "
      "devices: give 'bfloat16', or mesh.zero=0"
    )


def _check_compression(mesh, rules):
  kind = mesh.compression
  if not kind:
    return
  if mesh.data == 1:
    _refuse('compression', kind, 'mesh.data=1 has nothing to sum: give more')
  if mesh.zero and any('data' in names for _, names in rules.pairs):
    _refuse(
      'compression',
      kind,
      'mesh.rules shard over data, which needs exact sums: shard over fsdp',
    )


def _refuse(key, value, remedy):
  errors.refuse(f'mesh.{key}', value, remedy)
