"""Options that several optimizers share."""

import dataclasses

from rnn_jax import config


@dataclasses.dataclass(frozen=True)
class Momentum(config.Optimizer):
  """Options of optimizers with a first moment."""

  b1: float = config.option(0.9, below=1)  # decay of the first moment


@dataclasses.dataclass(frozen=True)
class Adam(Momentum):
  """Options of optimizers with two moments."""

  b2: float = config.option(0.99, below=1)  # decay of the second moment
  eps: float = config.option(1e-8, above=0)  # added to roots of second moments
