"""M models of series side by side, whose outputs are averaged.

    numbers = (numbers_1 + ... + numbers_M) / M            of forecasters
    outputs = (outputs_1 + ... + outputs_M) / M            of labelled series

Each has parameters and dropout of its own and is trained on its own loss, so
that they err differently and the mean errs less; the batches are the same. The
mean of quantiles is level by level, which keeps their order (Lichtendahl et
al., "Is It Better to Average Probabilities or Quantiles?", 2013); of a
distribution it is that of its parameters; of classes it is that of logits, so
that probabilities are the geometric mean, normalized. Means of forecasts won
the M4 competition (Smyl, "A hybrid method of exponential smoothing and
recurrent neural networks for time series forecasting", 2020), and means of
networks classify series best (Ismail Fawaz et al., "InceptionTime: Finding
AlexNet for Time Series Classification", 2020). The state is a tuple of M.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.models import series
from rnn_jax.models import series_labels

PyTree = Any


class _Members:
  """What both kinds have: the parameters and the states of M models."""

  member: list

  @nn.nowrap
  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    own = super().logical_axes()  # type: ignore[misc]
    return {f'member_*/{path}': x for path, x in own.items()}

  def init_state(self, B: int) -> PyTree:
    """Returns the states before a series, for B rows."""
    return tuple(each.init_state(B) for each in self.member)

  def state_axes(self) -> PyTree:
    """Returns the logical axes of the states, a tree like them."""
    return tuple(each.state_axes() for each in self.member)


class Ensemble(_Members, series.Forecaster):
  """M forecasters; see the module's docstring."""

  members: int = 2

  def setup(self) -> None:
    own = _fields(self, series.Forecaster)
    self.member = [series.Forecaster(**own) for _ in range(self.members)]

  @property
  def features_width(self) -> int:
    """D of the head's inputs: those of all members, one after another."""
    return self.members * self.config.width

  def features(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    calendar_BxLxF: jax.Array,
    starts_BxL: jax.Array | None = None,
    covariates: series.Covariates | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (states, the heads' inputs BxLxD)."""
    made = [
      member.features(
        own, readings_BxLxW, calendar_BxLxF, starts_BxL, covariates
      )
      for member, own in zip(self.member, state, strict=True)
    ]
    states, features = zip(*made, strict=True)
    return states, jnp.concatenate(features, -1)

  def forecasts(
    self,
    x_BxLxD: jax.Array,
    readings_BxLxW: jax.Array,
    covariates: series.Covariates | None = None,
  ) -> series.Forecasts:
    """Returns the mean of the members' forecasts."""
    return series.mean(self.each(x_BxLxD, readings_BxLxW, covariates))

  def each(
    self,
    x_BxLxD: jax.Array,
    readings_BxLxW: jax.Array,
    covariates: series.Covariates | None = None,
  ) -> list[series.Forecasts]:
    """Returns the forecasts of each member."""
    parts = jnp.split(x_BxLxD, self.members, -1)
    return [
      member.forecasts(own, readings_BxLxW, covariates)
      for member, own in zip(self.member, parts, strict=True)
    ]


class Labellers(_Members, series_labels.Labeller):
  """M models of labelled series; see the module's docstring."""

  members: int = 2

  def setup(self) -> None:
    own = _fields(self, series_labels.Labeller)
    self.member = [series_labels.Labeller(**own) for _ in range(self.members)]

  def pooled(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (states, the heads' inputs, one member's after another's)."""
    made = [
      member.pooled(own, readings_BxLxW, starts_BxL)
      for member, own in zip(self.member, state, strict=True)
    ]
    states, pools = zip(*made, strict=True)
    return states, jnp.concatenate(pools, -1)

  def each(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, list[jax.Array]]:
    """Returns (states, the outputs of each member)."""
    made = [
      member(own, readings_BxLxW, starts_BxL)
      for member, own in zip(self.member, state, strict=True)
    ]
    states, outputs = zip(*made, strict=True)
    return states, [*outputs]

  def __call__(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (states, outputs_BxLxO)."""
    state, outputs = self.each(state, readings_BxLxW, starts_BxL)
    return state, series_labels.mean(outputs)


def from_config(config: config_lib.Config) -> series.Forecaster:
  """Returns the forecaster of a config, or the ensemble of task.members.

  Raises:
    InputError: as `series.from_config`.
  """
  one, members = series.from_config(config), config.task.members
  if members == 1:
    return one
  return Ensemble(**_fields(one, series.Forecaster), members=members)


def labeller(
  config: config_lib.Config, outputs: int, pooling: str = series_labels.EACH
) -> series_labels.Labeller:
  """Returns the model of labels of a config, or that of all task.members.

  Raises:
    InputError: as `series_labels.from_config`.
  """
  one = series_labels.from_config(config, outputs, pooling)
  members = config.task.members
  if members == 1:
    return one
  return Labellers(**_fields(one, series_labels.Labeller), members=members)


def _fields(model, kind):
  """Returns what a model of a kind is made of, by name."""
  own = {
    each.name: getattr(model, each.name) for each in dataclasses.fields(kind)
  }
  return {name: x for name, x in own.items() if name not in ('parent', 'name')}
