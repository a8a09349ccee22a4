"""What a model asks of the devices that it runs on.

A device may have only some of the steps of each row, some heads, columns of an
MLP or entries of the vocabulary, or some layers. Where that matters, a model
asks the current devices:

    state, y = devices.current().recurrence(state, q, k, v, loga)

Outside of a mesh they are one device, which has all of everything. A program
of a mesh runs under `use(parallel.many_devices.ManyDevices(...))`, whose
methods communicate and return the same numbers. So cells, models and tasks know
no mesh, and what depends on one step only calls its op directly.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import jax

from rnn_jax.ops import attention
from rnn_jax.ops import causal_convolution
from rnn_jax.ops import delta
from rnn_jax.ops import gla
from rnn_jax.ops import linear_scan
from rnn_jax.ops import positions
from rnn_jax.ops import routed

PyTree = Any
GATHERED = 'gathered'  # name of gathered parameters, for remat policies

# (params, x_BxLxD, state, extra, key) -> (x_BxLxD, state), of some layers
Stage = Callable[..., tuple[jax.Array, PyTree]]
# (params, x_BxLxD, extra, key) -> (objective, sums)
Loss = Callable[..., tuple[jax.Array, PyTree]]


class StageInputs(NamedTuple):
  """What a stage of layers reads beside its parameters.

  Attributes:
    x_BxLxD: the inputs of the first layer.
    state: of the stage's layers, RxB... leaves.
    extra: B... arrays that each stage needs, as starts_BxL.
    key: a pytree of PRNG keys.
  """

  x_BxLxD: Any
  state: PyTree
  extra: PyTree = None
  key: PyTree = None


class OneDevice:
  """A device that has all of a model and of its rows."""

  # Time: operations that look along it have the contract of their op, of the
  # whole row: the state is that before or after the row, and the other arrays
  # have this device's steps.
  recurrence = staticmethod(gla.recurrence)
  delta = staticmethod(delta.recurrence)
  linear_scan = staticmethod(linear_scan.recurrence)
  convolve = staticmethod(causal_convolution.convolve)
  windows = staticmethod(causal_convolution.windows)
  attend = staticmethod(attention.attend)
  count = staticmethod(positions.count)
  associative_scan = staticmethod(jax.lax.associative_scan)

  @property
  def time_shards(self) -> int:
    """How many devices share the steps of a row."""
    return 1

  @property
  def time_shard(self) -> int | jax.Array:
    """The number of this device among them."""
    return 0

  def over_time(self, x: jax.Array) -> jax.Array:
    """Returns the sum of x over them; it has no gradient."""
    return x

  # Experts: rows that each choose some of several functions.
  routed = staticmethod(routed.apply)

  # Heads H, columns of an MLP F, experts E, vocabulary V (logical axes).

  def shards(self, axis: str) -> int:
    """Returns how many devices share the work on a logical axis."""
    del axis
    return 1

  def shard(self, axis: str) -> int | jax.Array:
    """Returns the number of this device among them."""
    del axis
    return 0

  def axis_name(self, axis: str) -> str:
    """Returns the mapped axis of these devices; '' if there is one device."""
    del axis
    return ''

  def tp_copy(self, x: jax.Array) -> jax.Array:
    """Returns x, as the input of sharded columns; sums its gradients."""
    return x

  def tp_reduce(self, x: jax.Array) -> jax.Array:
    """Returns the sum of what the devices computed from sharded rows."""
    return x

  def from_rows(self, x: jax.Array) -> jax.Array:
    """Returns x of the rows of all devices that share the experts.

    Rows are the first axis; a device's own ones are at `shard('E')`.
    """
    return x

  def to_rows(self, x: jax.Array) -> jax.Array:
    """Returns the sum of these devices' x for this device's own rows."""
    return x

  # Parameters.

  @property
  def shards_parameters(self) -> bool:
    """Whether a device keeps only some of the parameters."""
    return False

  @property
  def gathers_parameters(self) -> bool:
    """Whether the others are gathered in the forward pass."""
    return False

  def gather(self, params: PyTree, logical_axes: Mapping[str, str]) -> PyTree:
    """Returns parameters as they are used, from those that a device keeps.

    Args:
      params: nested dicts of arrays.
      logical_axes: by path, as {'mlp/*/kernel': 'DxF'}; the first match.
    """
    del logical_axes
    return params

  # Layers.

  @property
  def stages(self) -> int:
    """How many devices share the layers, each with a stage of them."""
    return 1

  @property
  def stage(self) -> int | jax.Array:
    """The number of this device among them."""
    return 0

  @property
  def interleaves(self) -> bool:
    """Whether some rows run backward before all have run forward.

    The loss is then computed by `run_stages_and_loss`.
    """
    return False

  def run_stages(
    self, stage: Stage, params: PyTree, inputs: StageInputs
  ) -> tuple[jax.Array, PyTree]:
    """Runs the layers of all stages.

    Args:
      stage: runs a device's layers.
      params: of these layers.
      inputs: of these layers; `x_BxLxD` is that of the first stage.

    Returns:
      (x_BxLxD of the last stage, the state of this device's layers).
    """
    return stage(params, *inputs)

  def run_stages_and_loss(
    self,
    stage: Stage,
    loss: Loss,
    params: PyTree,
    head: PyTree,
    inputs: StageInputs,
  ) -> tuple[jax.Array, tuple[PyTree, PyTree]]:
    """Runs the layers of all stages, and the loss of what the last returns.

    Args:
      stage: runs a device's layers.
      loss: of some rows: (head, x_BxLxD, extra, key) -> (objective, sums), all
        of which add up over rows.
      params: of this device's layers.
      head: what the loss has gradients for.
      inputs: as of `run_stages`.

    Returns:
      (objective, (sums, state)); only the objective has gradients.
    """
    x, state = self.run_stages(stage, params, inputs)
    objective, sums = loss(head, x, inputs.extra, inputs.key)
    return objective, jax.lax.stop_gradient((sums, state))


_ONE = OneDevice()
_CURRENT: contextvars.ContextVar[OneDevice] = contextvars.ContextVar('devices')


def current() -> OneDevice:
  """Returns the devices that the program being traced runs on."""
  return _CURRENT.get(_ONE)


@contextlib.contextmanager
def use(devices: OneDevice) -> Iterator[None]:
  """What is traced inside runs on these devices; also a decorator."""
  token = _CURRENT.set(devices)
  try:
    yield
  finally:
    _CURRENT.reset(token)
