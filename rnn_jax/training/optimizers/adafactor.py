"""Adafactor: Adam's second moment, factored into rows and columns.

For a matrix whose sides are both 128 or more, the state is the mean squares of
rows and columns, R and C, without a first moment:

    b_t = 1 - t^-.8
    R_t = b_t R_{t-1} + (1 - b_t) row means of (g_t^2 + 1e-30);  same for C
    u_t = g_t / sqrt(R_t C_t^T / mean(R_t));  u_t = u_t / max(1, RMS(u_t))
    p_t = p_{t-1} - rate (max(RMS(p_{t-1}), 1e-3) u_t + weight_decay p_{t-1})

For other tensors it is the whole second moment. Tensors of more axes are
matrices over their two longest. RMS is over a tensor, or over each layer of
stacked ones. The rate is relative to the size of the parameters: about 1e-2 is
usual. Weight decay is AdamW's.
Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear
Memory Cost", 2018.
"""

import dataclasses
from collections.abc import Collection

import optax

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Optimizer):
  """Options of the optimizer, section `optimizer` of the config."""


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  return optax.chain(
    optax.scale_by_factored_rms(),
    optimizer.by_layer(optax.clip_by_block_rms(1.0), stacked),
    optimizer.by_layer(optax.scale_by_param_block_rms(), stacked),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )
