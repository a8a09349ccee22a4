"""What a model asks of its devices (ops/devices.py), on a mesh.

All methods are for programs under `jax.shard_map` over the whole mesh.

Devices with their own rows share the experts of a layer:

    y_own = to_rows(sum over own experts of gate expert(from_rows(x_own)))

`from_rows` gathers the rows of all n devices along `expert`, each device runs
its E/n experts on those that are routed to them, and `to_rows` sums what all
computed and leaves each device its own rows. No row is dropped, whatever a
router chooses, and shapes don't depend on it: (n - 1)/n of the rows travel each
way, where an exchange of only the routed ones (Lepikhin et al., "GShard:
Scaling Giant Models with Conditional Computation and Automatic Sharding", 2020)
needs a capacity, and drops what is above it. One function is the transpose of
the other, so the backward pass sends as much.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from rnn_jax.ops import devices
from rnn_jax.parallel import axes
from rnn_jax.parallel import fsdp
from rnn_jax.parallel import pipeline
from rnn_jax.parallel import pipeline_flush
from rnn_jax.parallel import rules as rules_lib
from rnn_jax.parallel import sequence
from rnn_jax.parallel import sequence_shards
from rnn_jax.parallel import tensor

PyTree = Any


@dataclasses.dataclass(frozen=True)
class ManyDevices(devices.OneDevice):
  """The devices of a mesh.

  Attributes:
    rules: how parameters are sharded.
    micro_batches: of a pipeline over layers; 0: as many as stages.
    schedule: one of pipeline.SCHEDULES.
  """

  rules: rules_lib.Rules = rules_lib.Rules()
  micro_batches: int = 0
  schedule: str = 'gpipe'

  recurrence = staticmethod(sequence.recurrence)
  linear_scan = staticmethod(sequence.linear_scan)
  convolve = staticmethod(sequence.convolve)
  windows = staticmethod(sequence.windows)
  attend = staticmethod(sequence.attend)
  count = staticmethod(sequence.count)
  # What needs these has whole rows.
  delta = staticmethod(devices.OneDevice.delta)
  associative_scan = staticmethod(devices.OneDevice.associative_scan)
  # After `from_rows`.
  routed = staticmethod(devices.OneDevice.routed)

  @property
  def time_shards(self) -> int:
    return axes.size(sequence_shards.AXIS)

  @property
  def time_shard(self) -> int | jax.Array:
    return axes.index(sequence_shards.AXIS)

  def over_time(self, x: jax.Array) -> jax.Array:
    x = jax.lax.stop_gradient(x)
    return jax.lax.psum(x, sequence_shards.AXIS) if self.time_shards > 1 else x

  def shards(self, axis: str) -> int:
    return self.rules.shards(axis)

  def shard(self, axis: str) -> int | jax.Array:
    name = self.axis_name(axis)
    return axes.index(name) if name else 0

  def axis_name(self, axis: str) -> str:
    return self.rules.work(axis)[0] if self.shards(axis) > 1 else ''

  def tp_copy(self, x: jax.Array) -> jax.Array:
    return tensor.tp_copy(x)

  def tp_reduce(self, x: jax.Array) -> jax.Array:
    return tensor.tp_reduce(x)

  def from_rows(self, x: jax.Array) -> jax.Array:
    name = self.axis_name('E')
    return jax.lax.all_gather(x, name, axis=0, tiled=True) if name else x

  def to_rows(self, x: jax.Array) -> jax.Array:
    if not (name := self.axis_name('E')):
      return x
    return jax.lax.psum_scatter(x, name, scatter_dimension=0, tiled=True)

  @property
  def shards_parameters(self) -> bool:
    return self.rules.is_used()

  @property
  def gathers_parameters(self) -> bool:
    return self.rules.gathers()

  def gather(self, params: PyTree, logical_axes: Mapping[str, str]) -> PyTree:
    axes_of_each = fsdp.logical_axes(params, logical_axes)
    return fsdp.gather(params, axes_of_each, self.rules)

  @property
  def stages(self) -> int:
    return axes.size(pipeline.AXIS)

  @property
  def stage(self) -> int | jax.Array:
    return axes.index(pipeline.AXIS)

  @property
  def interleaves(self) -> bool:
    return self.schedule == '1f1b' and self.stages > 1

  def run_stages(
    self,
    stage: devices.Stage,
    params: PyTree,
    inputs: devices.StageInputs,
  ) -> tuple[jax.Array, PyTree]:
    """As of OneDevice; x_BxLxD is zero on all but the last stage.

    Gradients of layers before the first stage are on that stage, of those
    after the last on that, and zero elsewhere: a sum over the stages completes
    them.
    """
    return pipeline.gpipe(stage, params, inputs, self.micro_batches)

  def run_stages_and_loss(
    self,
    stage: devices.Stage,
    loss: devices.Loss,
    params: PyTree,
    head: PyTree,
    inputs: devices.StageInputs,
  ) -> tuple[jax.Array, tuple[PyTree, PyTree]]:
    return pipeline_flush.objective(
      stage, loss, params, head, inputs, self.micro_batches
    )
