"""Muon: orthogonalized momentum for matrices; AdamW for other parameters.

    m_t = b1 m_{t-1} + (1 - b1) g_t
    d_t = m_t / (1 - b1^t), with `optimizer.nesterov`
          b1 m_t / (1 - b1^{t+1}) + (1 - b1) g_t / (1 - b1^t)
    p_t = p_{t-1} - rate (.2 sqrt(max(rows, columns)) X_n
                          + weight_decay p_{t-1})

X_n, by ops/newton_schulz.py in n = `optimizer.newton_schulz_steps` steps, has
approximately the singular vectors of d_t, with singular values near 1. The
factor before it gives it the mean square of AdamW's updates, so that one rate
serves both.

Matrices are the kernels between the embedding and the head, each layer's
separately. A kernel that computes several projections (queries, keys, gates) is
one matrix.
Sources: Jordan et al., "Muon: An optimizer for hidden layers in neural
networks", 2024; Liu et al., "Muon is Scalable for LLM Training", 2025, for the
factor.
"""

import dataclasses
import math
from collections.abc import Collection

import jax
import optax

from rnn_jax import config as config_lib
from rnn_jax.ops import newton_schulz
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base

RMS = 0.2  # of AdamW's updates, from the second source
MATRIX = optax.contrib.MuonDimensionNumbers(-2, -1)


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  nesterov: bool = False  # the momentum of matrices looks ahead
  newton_schulz_steps: int = config_lib.option(5, minimum=1, maximum=20)
  # The factors of their products.
  newton_schulz_format: str = config_lib.option(
    'float32', choices=('float32', 'bfloat16')
  )
  # By what a matrix is divided before them.
  preconditioning: str = config_lib.option(
    'frobenius', choices=newton_schulz.NORMS
  )


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""

  def dimensions(params):
    return jax.tree.map(lambda x: MATRIX, params)

  def orthogonalized(x):
    return (RMS * math.sqrt(max(x.shape[-2:]))) * newton_schulz.orthogonalized(
      x,
      options.newton_schulz_steps,
      options.preconditioning,
      options.newton_schulz_format,
    )

  # The momentum d_t alone: after no steps, 'aol' has divided by nothing.
  momentum = optax.contrib.scale_by_muon(
    ns_steps=0,
    beta=options.b1,
    nesterov=options.nesterov,
    preconditioning='aol',
    weight_dimension_numbers=dimensions,
  )
  matrices = optax.chain(
    momentum,
    optax.stateless(
      lambda updates, params: jax.tree.map(orthogonalized, updates)
    ),
  )
  others = optax.scale_by_adam(options.b1, options.b2, options.eps)
  return optax.chain(
    optax.partition({'matrices': matrices, 'others': others}, _kinds(stacked)),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )


def _kinds(stacked):
  def kind(path, x):
    name = optimizer.parameter_name(path)
    matrix = x.ndim == 2 + (name in stacked) and path[-1].key == 'kernel'
    return 'matrices' if matrix and path[0].key != 'head' else 'others'

  return lambda params: jax.tree.map_with_path(kind, params)
