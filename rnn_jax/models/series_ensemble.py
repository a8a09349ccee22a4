"""M forecasters side by side, whose forecasts are averaged.

    numbers = (numbers_1 + ... + numbers_M) / M

Each has parameters and dropout of its own and is trained on its own loss, so
that they err differently and the mean errs less; the batches are the same. The
mean of quantiles is level by level, which keeps their order (Lichtendahl et
al., "Is It Better to Average Probabilities or Quantiles?", 2013); of a
distribution it is that of its parameters. Means of forecasts won the M4
competition (Smyl, "A hybrid method of exponential smoothing and recurrent
neural networks for time series forecasting", 2020). The state is a tuple of M.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.models import series

PyTree = Any


class Ensemble(series.Forecaster):
  """M forecasters; see the module's docstring."""

  members: int = 2

  def setup(self) -> None:
    own = _fields(self)
    self.member = [series.Forecaster(**own) for _ in range(self.members)]

  @property
  def features_width(self) -> int:
    """D of the head's inputs: those of all members, one after another."""
    return self.members * self.config.width

  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    own = super().logical_axes()
    return {f'member_*/{path}': x for path, x in own.items()}

  def init_state(self, B: int) -> PyTree:
    """Returns the states before a series, for B rows."""
    return tuple(each.init_state(B) for each in self.member)

  def state_axes(self) -> PyTree:
    """Returns the logical axes of the states, a tree like them."""
    return tuple(each.state_axes() for each in self.member)

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


def from_config(config: config_lib.Config) -> series.Forecaster:
  """Returns the forecaster of a config, or the ensemble of task.members.

  Raises:
    InputError: as `series.from_config`.
  """
  one, members = series.from_config(config), config.task.members
  return one if members == 1 else Ensemble(**_fields(one), members=members)


def _fields(model):
  """Returns what a forecaster is made of, by name."""
  fields = dataclasses.fields(series.Forecaster)
  own = {field.name: getattr(model, field.name) for field in fields}
  return {name: x for name, x in own.items() if name not in ('parent', 'name')}
