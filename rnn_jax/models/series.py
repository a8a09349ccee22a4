"""A forecaster of series: a window of readings in, H forecasts out, per step.

    z_t = (x_{t-W+1..t} - loc_t) / scale_t      missing readings are 0
    u_t = W_in [z_t, observed_t, calendar_{t+1}, level_t] + b
    o_t = W_head norm(stack(u))_t + b
    y_{t+h} = loc_t + scale_t head(o_t, anchor_{t,h} + (W_direct z_t)_h)

level_t is log(scale_t / (|loc_t| + scale_t)) and the sign of loc_t;
loc_t and scale_t are the mean and the mean absolute deviation of the window's
observed readings, so that forecasts of c x + d are c y + d ("reversible
instance normalization", Kim et al., 2022); without `normalize` they are 0 and
1. The anchor is the forecast that the head corrects (series_anchors.py): the
reading one season before, unless the config says otherwise. The head and
W_direct, a linear forecast from the window (Zeng et al., "Are Transformers
Effective for Time Series Forecasting?", 2023), start at 0, so that an untrained
model is the anchor. A head of counts has them in units of the window's mean,
from 0. The stack is the one of a language model, and so is its state, which is
constant in size.

With covariates (data/series/covariates.py) u_t has W_c [c_t, observed], too,
c_t those of the step, and the sum of its categories' embeddings. What is known
of a reading to come has an effect on it, which the state gates:

    head's outputs of t + h += W_e (silu(W_k [known_{t,h}, observed]) * W_g x_t)

so that the cost is linear in L, and a forecast reads nothing that is known of
the readings after it. Embeddings and W_e start at 0: an unknown category adds
nothing.

With T targets, columns that are read and forecast together, z_t, level_t and
the anchor are each target's own, u_t has all of them, and the head writes the
forecasts of all, so that each is made of every target's readings; W_direct is
shared.

Shapes: readings BxLxW, calendar BxLxF, forecasts BxLxH, H the horizon. Of
several targets W and H are theirs one after the other.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import blocks
from rnn_jax.models import forecast_heads
from rnn_jax.models import language_model
from rnn_jax.models import series_anchors
from rnn_jax.models import stack
from rnn_jax.ops import precision

PyTree = Any
EFFECTS = 16  # units between what is known of a reading and its effect
LEVEL = 0.01  # of the mean size of readings, in the scale of a flat window
TINY = 1e-6  # the least scale, in scaled readings
LOGICAL_AXES = {
  'input/kernel': '_xD',
  'input/bias': 'D',
  'norm/*': 'D',
  'covariates/kernel': '_xD',
  'categories/embedding': '_xD',
  'known/kernel': '_x_',
  'known/bias': '_',
  'gate/kernel': 'Dx_',
  'gate/bias': '_',
  'effect/kernel': '_x_',
  'direct/kernel': '_x_',
  'head/kernel': 'Dx_',
  'head/bias': '_',
}


class Sizes(NamedTuple):
  """W, F, H and the season, from section `data` of a config.

  Of covariates K and C, and how many values each category has; of T targets W
  and H are those of each.
  """

  window: int
  calendar: int
  horizon: int
  season: int
  known: int = 0
  inputs: int = 0
  categories: tuple[int, ...] = ()
  targets: int = 1

  def by_target(self, x: jax.Array) -> jax.Array:
    """Returns ...x(T W) as ...xTxW, and so what is to come."""
    return x.reshape(*x.shape[:-1], self.targets, -1)


class Covariates(NamedTuple):
  """What steps know besides readings, see data/batching/batch.py."""

  known_BxLxHxK: jax.Array
  inputs_BxLxC: jax.Array
  categories_BxLxS: jax.Array

  @classmethod
  def of(cls, batch: batch_lib.Batch) -> Self | None:
    """Returns those of a batch; None: it has none."""
    if batch.known_BxLxHxK is None:
      return None
    return cls(batch.known_BxLxHxK, batch.inputs_BxLxC, batch.categories_BxLxS)


class Forecasts(NamedTuple):
  """Forecasts of each step, in scaled readings.

  Attributes:
    numbers: O arrays BxLxH, of the head, in units of `scale_BxLxH` from
      `loc_BxLxH`.
    loc_BxLxH: of the step's window of a reading's target.
    scale_BxLxH: the same.
  """

  numbers: forecast_heads.Numbers
  loc_BxLxH: jax.Array
  scale_BxLxH: jax.Array


class Forecaster(nn.Module):
  """See the module's docstring; build it with `from_config`."""

  config: config_lib.Model
  cell_config: Any
  sizes: Sizes
  head_kind: str
  levels: tuple[float, ...]
  anchor: str = 'season'
  normalize: bool = True
  plan: base.Plan = base.Plan()
  policy: precision.Policy = precision.POLICIES['float32']

  def setup(self) -> None:
    config, policy = self.config, self.policy
    self.input = nn.Dense(
      config.width, dtype=policy.activations, dot_general=policy.dot_general
    )
    self.stack = stack.Stack(config, self.cell_config, self.plan, policy)
    if config.block != 'plain':
      self.norm = blocks.norm(config, policy)
    self.drop = blocks.dropout(config)
    if self.sizes.inputs:
      self.covariates = nn.Dense(config.width, use_bias=False)
    if self.sizes.categories:
      self.categories = nn.Embed(
        sum(self.sizes.categories) + len(self.sizes.categories),
        config.width,
        embedding_init=nn.initializers.zeros,
      )
    if self.sizes.known:
      self.known, self.gate = nn.Dense(EFFECTS), nn.Dense(EFFECTS)
      self.effect = nn.Dense(
        self.sizes.targets * self.numbers.outputs,
        use_bias=False,
        kernel_init=nn.initializers.zeros,
      )
    self.direct = nn.Dense(
      self.sizes.horizon, use_bias=False, kernel_init=nn.initializers.zeros
    )
    self.head = nn.Dense(
      self.sizes.targets * self.sizes.horizon * self.numbers.outputs,
      dtype=jnp.float32,
      kernel_init=nn.initializers.zeros,
    )

  @property
  def numbers(self) -> forecast_heads.Head:
    """What the head's outputs mean."""
    return forecast_heads.Head(self.head_kind, self.levels)

  @property
  def features_width(self) -> int:
    """D of the head's inputs."""
    return self.config.width

  @property
  def reads_covariates(self) -> bool:
    """Whether steps know something besides readings."""
    return bool(self.sizes.inputs or self.sizes.categories)

  @nn.nowrap
  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    axes = stack.logical_axes(self.config)
    return LOGICAL_AXES | {f'stack/{path}': x for path, x in axes.items()}

  def init_state(self, B: int) -> PyTree:
    """Returns the state before a series, for B rows."""
    return self.stack.init_state(B)

  def state_axes(self) -> PyTree:
    """Returns the logical axes of the state, a tree like it."""
    return self.stack.state_axes()

  def __call__(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    calendar_BxLxF: jax.Array,
    starts_BxL: jax.Array | None = None,
    covariates: Covariates | None = None,
  ) -> tuple[PyTree, Forecasts]:
    """Returns (state, the forecasts of each step)."""
    state, x_BxLxD = self.features(
      state, readings_BxLxW, calendar_BxLxF, starts_BxL, covariates
    )
    return state, self.forecasts(x_BxLxD, readings_BxLxW, covariates)

  def features(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    calendar_BxLxF: jax.Array,
    starts_BxL: jax.Array | None = None,
    covariates: Covariates | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, the head's inputs BxLxD)."""
    x = self.read(readings_BxLxW, calendar_BxLxF, covariates)
    state, x = self.stack(state, x, starts_BxL)
    if blocks.drops_inputs(self.config):
      x = self._dropped(x)
    return state, self.norm(x) if self.config.block == 'residual' else x

  def read(
    self,
    readings_BxLxW: jax.Array,
    calendar_BxLxF: jax.Array,
    covariates: Covariates | None = None,
  ) -> jax.Array:
    """Returns the first block's inputs, BxLxD."""
    z_BxLxTxW, loc, scale = self._normalized(readings_BxLxW)
    z = z_BxLxTxW.reshape(readings_BxLxW.shape)
    observed = ~jnp.isnan(readings_BxLxW)
    level = jnp.log(scale / (jnp.abs(loc) + scale))
    given = z, observed, calendar_BxLxF, level, jnp.sign(loc)
    u = jnp.concatenate([x.astype(jnp.float32) for x in given], -1)
    x = self.input(u.astype(self.policy.activations))
    if self.reads_covariates:
      assert covariates is not None
      x += self._besides(covariates).astype(x.dtype)
    if not blocks.drops_inputs(self.config):
      x = self._dropped(x)
    return self.norm(x) if self.config.block == 'normed' else x

  def _besides(self, covariates):
    """Returns what the covariates of each step add to its input, BxLxD."""
    x = jnp.zeros((), jnp.float32)
    if self.sizes.inputs:
      x += self.covariates(masked(covariates.inputs_BxLxC))
    if self.sizes.categories:
      entries = [size + 1 for size in self.sizes.categories]
      first_S = np.cumsum([0, *entries[:-1]])
      at_BxLxS = covariates.categories_BxLxS + first_S[None, None]
      x += jnp.sum(self.categories(at_BxLxS), -2)
    return x

  def _normalized(self, readings_BxLxW):
    """Returns (z_BxLxTxW, loc_BxLxT, scale_BxLxT), see `normalized`."""
    return normalized(self.sizes.by_target(readings_BxLxW), self.normalize)

  def _dropped(self, x):
    return self.drop(x, deterministic=not self.has_rng('dropout'))

  def forecasts(
    self,
    x_BxLxD: jax.Array,
    readings_BxLxW: jax.Array,
    covariates: Covariates | None = None,
  ) -> Forecasts:
    """Returns the forecasts of steps, from the head's inputs."""
    z_BxLxTxW, loc, scale = self._normalized(readings_BxLxW)
    out = self.head(x_BxLxD)
    out = out.reshape(*out.shape[:2], self.numbers.outputs, -1)
    if self.sizes.known:
      assert covariates is not None
      x_BxLx1xD = x_BxLxD.astype(jnp.float32)[:, :, None]
      known = nn.silu(self.known(masked(covariates.known_BxLxHxK)))
      effect = self.sizes.by_target(self.effect(known * self.gate(x_BxLx1xD)))
      effect_BxLxOxTxH = effect.transpose(0, 1, 4, 3, 2)
      out += effect_BxLxOxTxH.reshape(out.shape)
    observed = self.sizes.by_target(~jnp.isnan(readings_BxLxW))
    center = self.anchors(z_BxLxTxW, observed) + self.direct(z_BxLxTxW)
    if self.numbers.counts:
      unit = jnp.maximum(loc, 1 / self.sizes.window)  # the least mean above 0
      center = loc[..., None] + scale[..., None] * center
      center /= unit[..., None]
      loc, scale = jnp.zeros_like(loc), unit
    center_BxLxH, loc_BxLxH, scale_BxLxH = (
      jnp.broadcast_to(x, center.shape).reshape(*out.shape[:2], -1)
      for x in (center, loc[..., None], scale[..., None])
    )
    numbers = self.numbers.numbers(out, center_BxLxH)
    return Forecasts(numbers, loc_BxLxH, scale_BxLxH)

  def each(
    self,
    x_BxLxD: jax.Array,
    readings_BxLxW: jax.Array,
    covariates: Covariates | None = None,
  ) -> list[Forecasts]:
    """Returns the forecasts that training has losses of: one."""
    return [self.forecasts(x_BxLxD, readings_BxLxW, covariates)]

  def anchors(
    self, z_BxLxTxW: jax.Array, observed_BxLxTxW: jax.Array
  ) -> jax.Array:
    """Returns the forecasts that the head corrects, BxLxTxH."""
    season, horizon = self.sizes.season, self.sizes.horizon
    return series_anchors.forecasts(
      self.anchor, z_BxLxTxW, observed_BxLxTxW, season, horizon
    )


def masked(covariates: jax.Array) -> jax.Array:
  """Returns covariates and which are there, ...x2C; missing ones are 0."""
  missing = jnp.isnan(covariates)
  given = jnp.where(missing, 0, covariates), ~missing
  return jnp.concatenate([x.astype(jnp.float32) for x in given], -1)


def normalized(
  readings: jax.Array, normalize: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns (z, loc, scale) of windows ...xW, of z = (x - loc) / scale.

  A missing reading is 0 in z. Without `normalize` loc is 0 and scale 1.
  """
  observed = ~jnp.isnan(readings)
  x = jnp.where(observed, readings, 0)
  if not normalize:
    loc = jnp.zeros(x.shape[:-1], x.dtype)
    return x, loc, jnp.ones_like(loc)
  count = jnp.maximum(jnp.sum(observed, -1), 1).astype(x.dtype)
  loc = jnp.sum(x, -1) / count
  centered = jnp.where(observed, x - loc[..., None], 0)
  spread = jnp.sum(jnp.abs(centered), -1) / count
  size = jnp.sum(jnp.abs(x), -1) / count
  scale = spread + LEVEL * size + TINY
  return centered / scale[..., None], loc, scale


def mean(each: Sequence[Forecasts]) -> Forecasts:
  """Returns the mean of forecasts from the same windows."""
  first, *others = each
  numbers = first.numbers
  for other in others:
    numbers = jax.tree.map(jnp.add, numbers, other.numbers)
  return first._replace(numbers=jax.tree.map(lambda x: x / len(each), numbers))


def from_config(config: config_lib.Config) -> Forecaster:
  """Returns the forecaster of a config.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  data, task = config.data, config.task
  _, calendar, _ = data.widths
  _, known, inputs, _ = data.covariate_widths or (0, 0, 0, 0)
  return Forecaster(
    config.model,
    config.cell,
    Sizes(
      data.window,
      calendar,
      data.horizon,
      data.season,
      known,
      inputs,
      data.category_sizes,
      len(data.readings),
    ),
    task.head,
    task.quantiles,
    task.anchor,
    data.scaling in tokenizer_lib.OF_WINDOWS,
    language_model.plan(config),
    language_model.policy(config),
  )
