"""Muon: orthogonalized momentum for matrices; AdamW for other parameters.

    m_t = b1 m_{t-1} + (1 - b1) g_t
    d_t = m_t / (1 - b1^t), with `optimizer.nesterov`
          b1 m_t / (1 - b1^{t+1}) + (1 - b1) g_t / (1 - b1^t)
    X_0 = d_t / |d_t|
    X_i = a X_{i-1} + (b A + c A^2) X_{i-1},  A = X_{i-1} X_{i-1}^T,  i = 1 .. n
    p_t = p_{t-1} - rate (.2 sqrt(max(rows, columns)) X_n
                          + weight_decay p_{t-1})

with n = `optimizer.newton_schulz_steps` and (a, b, c) = (3.4445, -4.775,
2.0315): X_n has approximately the singular vectors of d_t, with singular values
near 1. The factor before it gives X_n the mean square of AdamW's updates, so
that one rate serves both. `optimizer.preconditioning` names the norm |d_t|:

    frobenius  the root of the sum of the squares of all singular values
    spectral   the largest singular value, which takes a decomposition
    schatten   the fourth root of the sum of their fourth powers
    aol        row by row of the shorter side: the root of sum_j |D D^T|_ij

The smaller it is, the nearer to 1 are the singular values of X_0, which are at
most 1 with any of them; fewer steps then do.

Matrices are the kernels between the embedding and the head, each layer's
separately. A kernel that computes several projections (queries, keys, gates) is
one matrix.
Sources: Jordan et al., "Muon: An optimizer for hidden layers in neural
networks", 2024; Liu et al., "Muon is Scalable for LLM Training", 2025, for the
factor; Boissin et al., "Turbo-Muon: Accelerating Orthogonality-Based
Optimization with Pre-Conditioning", 2025, for 'aol'.
"""

import dataclasses
import math
from collections.abc import Collection

import jax
import optax

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base

RMS = 0.2  # of AdamW's updates, from the second source
MATRIX = optax.contrib.MuonDimensionNumbers(-2, -1)


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  nesterov: bool = False  # the momentum of matrices looks ahead
  newton_schulz_steps: int = config_lib.option(5, minimum=1, maximum=20)
  # By what a matrix is divided before them.
  preconditioning: str = config_lib.option(
    'frobenius', choices=('frobenius', 'spectral', 'schatten', 'aol')
  )


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""

  def dimensions(params):
    return jax.tree.map(lambda x: MATRIX, params)

  matrices = optax.chain(
    optax.contrib.scale_by_muon(
      ns_steps=options.newton_schulz_steps,
      beta=options.b1,
      eps=options.eps,
      nesterov=options.nesterov,
      preconditioning=options.preconditioning,
      weight_dimension_numbers=dimensions,
    ),
    optax.stateless(lambda updates, params: jax.tree.map(_sized, updates)),
  )
  others = optax.scale_by_adam(options.b1, options.b2, options.eps)
  return optax.chain(
    optax.partition({'matrices': matrices, 'others': others}, _kinds(stacked)),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )


def _sized(x):
  return RMS * math.sqrt(max(x.shape[-2:])) * x


def _kinds(stacked):
  def kind(path, x):
    name = optimizer.parameter_name(path)
    matrix = x.ndim == 2 + (name in stacked) and path[-1].key == 'kernel'
    return 'matrices' if matrix and path[0].key != 'head' else 'others'

  return lambda params: jax.tree.map_with_path(kind, params)
