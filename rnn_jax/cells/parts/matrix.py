"""Cells with a matrix as the state of each head, and gates that don't read it.

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        o_t = S_t^T q_t
    y = W_o [n_1; ...; n_H],   n_h = rms_norm(o_h) * silu(g_h)

A cell's file says what x is projected to and how q, k, v and log a follow from
it, `read`; the recurrence is that of ops/gla in any of its forms. The norm is
of each head and has no scale, which W_o can learn, so that heads can be
sharded; with `norm_scale`, as pretrained models have, all heads share one. The
parts of the projection that a cell names in `mixed` go through a short causal
convolution of each channel. What is kept between steps besides the memory, such
as that convolution's inputs, is `extra` in the state.

Shapes: q, k, a BxLxHxK, or a BxLxHx1; v, o, g BxLxHxP; the state BxHxKxP and
the inputs of the convolution, BxWxE.
"""

import dataclasses
import itertools
import math
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.ops import causal_convolution
from rnn_jax.ops import devices
from rnn_jax.ops import gla
from rnn_jax.ops import precision
from rnn_jax.system import target

IMPLS = base.impls_of(gla.IMPLS)
LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'taps': '_xH',
  'norm/scale': '_',
  'output/kernel': 'HxD',
}
RATES = 1.0, 16.0  # exp(A) at the start, of decays exp(-exp(A) dt)
STEPS = 1e-3, 1e-1  # dt at the start
WIDE = 1024  # columns of the projection that are a matmul of their own on a GPU


def chunk_length(plan: base.Plan, updates: int = 1) -> int | None:
  """Returns the steps between the states that ops/gla stores.

  Args:
    plan: of the cell, whose steps have so many updates of the state each.
    updates: each of them a step of ops/gla.
  """
  every = plan.remat_every * updates
  if every <= gla.BLOCK:
    return every or plan.chunk_length and plan.chunk_length * updates
  return -(-every // gla.BLOCK) * gla.BLOCK  # 'sqrt' gives any number


def split(x: jax.Array, widths: dict[str, int]) -> dict[str, jax.Array]:
  """Splits the last axis into named parts."""
  # One split: its gradient is one concatenation, not a sum of padded parts.
  ends = itertools.accumulate(widths.values())
  return dict(zip(widths, jnp.split(x, list(ends)[:-1], -1), strict=True))


def at_one_step(parts: dict[str, jax.Array]) -> dict[str, jax.Array]:
  """Returns parts without a time axis as those of a row of one step."""
  return {name: x[:, None] for name, x in parts.items()}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options that these cells share, section `cell` of the config."""

  heads: int = config_lib.option(4, minimum=1)
  key_width: int = config_lib.option(16, minimum=1)
  value_width: int = config_lib.option(48, minimum=1)
  # On the normed outputs of the recurrence.
  dropout: float = config_lib.option(0.0, below=1)
  norm_scale: bool = False  # of these outputs
  # Added to their mean square.
  norm_epsilon: float = config_lib.option(1e-6, above=0)

  # The axes of the norm's scale: those of a head, or also of all heads.
  scaled_axes: ClassVar[tuple[int, ...]] = (-1,)
  impls: ClassVar[tuple[str, ...]] = IMPLS
  multiplying: ClassVar[tuple[str, ...]] = precision.MULTIPLYING
  own_states: ClassVar[bool] = True
  block: ClassVar[int] = gla.BLOCK

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.norm_scale and len(self.scaled_axes) == 1 != config.mesh.tensor:
      self._refuse(
        'norm_scale',
        f'all heads share it, and mesh.tensor={config.mesh.tensor} devices '
        'share the heads: give False, or mesh.tensor=1',
      )
    super().check(config)

  @property
  def memories(self) -> int:
    """H of the values and of the state; `heads`, unless they share keys."""
    return self.heads

  @property
  def states(self) -> int:
    """H of the state; `memories`, unless each has several states."""
    return self.memories

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one head's projection."""
    return {
      'query': self.key_width,
      'key': self.key_width,
      'value': self.value_width,
      'output_gate': self.value_width,
    }

  @property
  def shared(self) -> tuple[str, ...]:
    """The last of these parts if all heads have the same."""
    return ()


class State(NamedTuple):
  """The state between two steps."""

  memory_BxHxKxP: jax.Array
  extra: Any = None  # what the cell's `read` keeps


class Channels(NamedTuple):
  """The inputs of the recurrence; q and k may be of groups, BxLxGxK."""

  q_BxLxHxK: jax.Array
  k_BxLxHxK: jax.Array
  v_BxLxHxP: jax.Array
  loga_BxLxHxK: jax.Array  # or BxLxHx1
  rate_BxLxH: jax.Array | None = None
  skip_H: jax.Array | None = None


Parts = dict[str, jax.Array]  # BxLxHx_ each, of the projection


class Cell(base.ParallelCell):
  """A cell without its `read`.

  Attributes:
    mixed: the parts of the projection that the convolution mixes over time, set
      by the cell, whose config then has `convolution`, the number of taps.
  """

  mixed: ClassVar[tuple[str, ...]] = ()

  def __init_subclass__(cls, **options):
    # As `init_state`, they need no parameters.
    for name in ('init_extra', 'extra_axes'):
      if name in vars(cls):
        setattr(cls, name, nn.nowrap(vars(cls)[name]))
    super().__init_subclass__(**options)

  def setup(self) -> None:
    widths, own = self.config.widths, sum(self._own.values())
    self.projection = self.xavier(
      self.units_per_step * own, dot_general=self._product_by_parts
    )
    for name in self.config.shared:
      setattr(self, f'{name}_down', self.dense(widths[name], use_bias=False))
    if self._convolves:
      shape = self.config.convolution, self.channels
      self.taps = self.param('taps', init_taps, shape)
    self.norm = self.make_norm()
    self.output = self.xavier(self.width)
    self.drop = nn.Dropout(self.config.dropout)

  def make_norm(self) -> nn.Module:
    """Returns the norm of the outputs of the recurrence, of each head."""
    return nn.RMSNorm(
      self.config.norm_epsilon,
      dtype=jnp.float32,
      use_scale=self.config.norm_scale,
      feature_axes=self.config.scaled_axes,
    )

  @property
  def units_per_step(self) -> int:
    """How many times the projection has the widths of the config: H."""
    return self.config.heads

  @property
  def lengths(self) -> dict[str, float]:
    """The lengths of keys and queries that are normed after it, by name."""
    return {}

  @property
  def _convolves(self):
    return bool(self.mixed) and self.config.convolution > 0

  @property
  def channels(self) -> int:
    """E: those of the convolution."""
    widths = self.config.widths
    return self.units_per_step * sum(widths[name] for name in self.mixed)

  @nn.nowrap
  def init_extra(self, B: int) -> Any:
    """Returns `extra` before a document: zeros, float32, for B rows."""
    if not self._convolves:
      return None
    return jnp.zeros((B, self.config.convolution - 1, self.channels))

  @nn.nowrap
  def extra_axes(self) -> Any:
    """Returns the logical axes of `extra`, a tree like it."""
    return 'Bx_xH' if self._convolves else None

  def mix(
    self,
    extra: Any,
    parts: Parts,
    starts_BxL: jax.Array | None,
    bias_E: jax.Array | None = None,
  ) -> tuple[Any, Parts]:
    """Returns (the convolution's next inputs, silu(conv + b) of `mixed`).

    Those with `lengths` are normed. On a GPU each part has a convolution of its
    own, so that it is read and written once; a CPU runs one for all.
    """
    by_parts = self.plan.impl == 'pallas' or target.platform() == 'gpu'
    groups = [(name,) for name in self.mixed] if by_parts else [self.mixed]
    B, L, *_ = parts[self.mixed[0]].shape
    taps = self.taps if self._convolves else jnp.ones((1, self.channels))
    before = extra if self._convolves else jnp.zeros((B, 0, self.channels))
    kernels = self.plan.impl == 'pallas' and L > 1 < len(taps)
    last: list[jax.Array] = []
    mixed: Parts = {}
    for names, own_before, own_taps, bias in zip(
      groups,
      *(self._of_groups(x, groups) for x in (before, taps, bias_E)),
      strict=True,
    ):
      x = jnp.concatenate([parts[name] for name in names], -1)
      norm = self._norm(names[0], x.shape[2:]) if by_parts else None
      options = causal_convolution.Options(
        True, norm, 'pallas' if kernels else 'xla'
      )
      after, y = devices.current().convolve(
        own_before, x.reshape(B, L, -1), own_taps, starts_BxL, bias, options
      )
      last.append(after.reshape(*after.shape[:2], *x.shape[2:]))
      widths = {name: self.config.widths[name] for name in names}
      mixed |= split(y.reshape(x.shape), widths)
    if not by_parts:
      for name in self.lengths:
        y, norm = mixed[name], self._norm(name, mixed[name].shape[2:])
        mixed[name] = causal_convolution.normed(
          y.reshape(B, L, -1), norm
        ).reshape(y.shape)
    if not self._convolves:
      return None, mixed
    extra = jnp.concatenate(last, -1).astype(jnp.float32)
    return extra.reshape(*extra.shape[:2], self.channels), mixed

  def _norm(self, name, shape):
    """Returns the norm of a part of a shape Hx_; None: it has none."""
    if name not in self.lengths:
      return None
    heads = math.prod(shape) // self.config.key_width
    return causal_convolution.Norm(heads, self.lengths[name])

  def _of_groups(self, x, groups):
    """Returns the channels of each group of parts, of ...xE."""
    if x is None or len(groups) == 1:
      return [x] * len(groups)
    widths = {name: self.config.widths[name] for name in self.mixed}
    # Not -1: without a convolution it has no inputs.
    units = self.units_per_step
    x = x.reshape(*x.shape[:-1], units, sum(widths.values()))
    return [
      part.reshape(*x.shape[:-2], units * part.shape[-1])
      for part in split(x, widths).values()
    ]

  def read(
    self, extra: Any, parts: Parts, starts_BxL: jax.Array | None
  ) -> tuple[Any, Any]:
    """Returns (extra after these steps, Channels or what `run` takes).

    Args:
      extra: before the first step.
      parts: of the projection.
      starts_BxL: nonzero where a document begins, or None.
    """
    raise NotImplementedError

  def finish(
    self, o_BxLxHxP: jax.Array, parts: Parts, read: Any, extra: Any
  ) -> jax.Array:
    """Returns the inputs of W_o, BxLxHxP, from what the memory gave."""
    del read, extra
    return self.gated(o_BxLxHxP, nn.silu(parts['output_gate']))

  def gated(self, o_BxLxHxP: jax.Array, gate_BxLxHxP: jax.Array) -> jax.Array:
    """Returns the normed outputs of the memory times a gate, in its dtype."""
    return self.norm(o_BxLxHxP).astype(gate_BxLxHxP.dtype) * gate_BxLxHxP

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: Any,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    """Runs the recurrence. Returns (memory, o_BxLxHxP)."""
    *channels, rate, skip = read
    return devices.current().recurrence(
      memory_BxHxKxP,
      *channels,
      rate_BxLxH=rate,
      skip_H=skip,
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.chunk_length,
      operands=self.policy.of_recurrence(impl),
    )

  @property
  def chunk_length(self) -> int | None:
    """The steps between the states that ops/gla stores."""
    return chunk_length(self.plan)

  @property
  def columns(self) -> int:
    """P of the memory."""
    return self.config.value_width

  def init_state(self, B: int) -> State:
    config = self.config
    shape = (B, config.states, config.key_width, self.columns)
    memory = jnp.zeros(shape, self.policy.states)
    return State(memory, self.init_extra(B))

  def state_axes(self) -> State:
    return State('BxH', self.extra_axes())  # type: ignore[arg-type]

  def project(self, x_BxLxD: jax.Array) -> Parts:
    """Returns the raw channels of each part; `shared` ones are BxLx1x_."""
    x = self.projection(x_BxLxD)
    x = x.reshape(*x.shape[:2], self.units_per_step, -1)
    return split(x, self._own) | {
      name: getattr(self, f'{name}_down')(x_BxLxD)[:, :, None]
      for name in self.config.shared
    }

  @property
  def _own(self):
    """The widths of the parts of `projection`."""
    widths, shared = self.config.widths, self.config.shared
    return {name: n for name, n in widths.items() if name not in shared}

  def _product_by_parts(self, x_BxLxD, kernel_DxE, *options, **named):
    """Multiplies by the columns of each wide part on a GPU.

    Its output then isn't a slice, nor the gradient of it copied to one.
    """

    def product(kernel_Dx_):
      return self.policy.dot_general(x_BxLxD, kernel_Dx_, *options, **named)

    units, widths = self.units_per_step, self._own
    wide = [name for name, n in widths.items() if n * units >= WIDE]
    if target.platform() != 'gpu' or not wide:
      return product(kernel_DxE)
    kernels = split(kernel_DxE.reshape(len(kernel_DxE), units, -1), widths)

    def of_parts(names):
      kernel = jnp.concatenate([kernels[name] for name in names], -1)
      y = product(kernel.reshape(len(kernel), -1))
      y = y.reshape(*y.shape[:-1], units, -1)
      return split(y, {name: widths[name] for name in names})

    narrow = [name for name in widths if name not in wide]
    made = of_parts(narrow) if narrow else {}
    for name in wide:
      made |= of_parts([name])
    y = jnp.concatenate([made[name] for name in widths], -1)
    return y.reshape(*y.shape[:-2], -1)

  def gates(self, state: State, u: Parts) -> base.Gates:
    _, read = self.read(state.extra, at_one_step(u), None)
    loga = read.loga_BxLxHxK[:, 0]
    return base.Gates({'keep': jnp.exp(loga)}, loga)

  def advance(
    self,
    state: State,
    u: Parts,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[State, jax.Array]:
    extra, read = self.read(state.extra, u, starts_BxL)
    memory, o = self.run(state.memory_BxHxKxP, read, starts_BxL, impl)
    y = self.finish(o, u, read, extra).astype(self.policy.activations)
    return State(memory, extra), y.reshape(*y.shape[:2], -1)


def init_taps(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
  """Draws the taps of a convolution, evenly within taps**-0.5."""
  bound = shape[0] ** -0.5
  return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def init_rates(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Draws exp(A) evenly from RATES; returns A."""
  low, high = RATES
  return jnp.log(jax.random.uniform(key, shape, minval=low, maxval=high))


def init_steps(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Draws dt from STEPS, evenly on a log scale; returns softplus^-1 of it."""
  low, high = map(math.log, STEPS)
  drawn = jax.random.uniform(key, shape, minval=low, maxval=high)
  return jnp.log(jnp.expm1(jnp.exp(drawn)))
