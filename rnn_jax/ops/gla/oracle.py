"""The recurrence in float64 NumPy, a loop written from the equations.

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t

and its gradients, for dY = dL/dy and dS_L = dL/dS_L given:

    dS_t = q_t dY_t^T + diag(a_{t+1}) dS_{t+1}      dS_0 = diag(a_1) dS_1
    dq_t = S_t dY_t      dk_t = dS_t v_t      dv_t = dS_t^T k_t
    da_t[i] = sum_j dS_t[i,j] S_{t-1}[i,j]          dloga_t = a_t da_t

Where a document starts, S_{t-1} counts as zero and receives no gradient. What
the heads of a group share has the sum of their gradients.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Inputs(NamedTuple):
  """The arguments that have gradients, in the order of gla.recurrence."""

  state: npt.ArrayLike
  q: npt.ArrayLike
  k: npt.ArrayLike
  v: npt.ArrayLike
  loga: npt.ArrayLike


def forward(
  inputs: Inputs, starts: np.ndarray, read: str = 'after'
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (state_BxHxKxP, y_BxLxHxP), float64.

  Args:
    inputs: Inputs of the shapes of gla.recurrence.
    starts: BxL, nonzero where a document begins.
    read: 'after' or 'before' the update.
  """
  old, new, a, (_, q, *_) = _run(inputs, starts)
  seen = new if read == 'after' else old
  return new[:, -1], np.einsum('blhkp,blhk->blhp', seen, q)


def backward(
  inputs: Inputs,
  starts: np.ndarray,
  d_state: np.ndarray,
  d_y: np.ndarray,
  read: str = 'after',
) -> Inputs:
  """Returns the gradients, an Inputs of float64.

  Args:
    inputs: as in `forward`.
    starts: as in `forward`.
    d_state: the gradient of the final state, BxHxKxP.
    d_y: the gradient of y, BxLxHxP.
    read: as in `forward`.
  """
  old, new, a, (_, q, k, v, loga) = _run(inputs, starts)
  d_y, d = np.asarray(d_y, np.float64), np.asarray(d_state, np.float64)
  seen = new if read == 'after' else old
  d_q = np.einsum('blhkp,blhp->blhk', seen, d_y)
  d_k, d_v, d_loga = np.zeros_like(k), np.zeros_like(v), np.zeros_like(a)
  for t in reversed(range(q.shape[1])):
    read_here = q[:, t, :, :, None] * d_y[:, t, :, None, :]
    d = d + read_here if read == 'after' else d
    d_k[:, t] = np.einsum('bhkp,bhp->bhk', d, v[:, t])
    d_v[:, t] = np.einsum('bhkp,bhk->bhp', d, k[:, t])
    d_loga[:, t] = a[:, t] * (d * old[:, t]).sum(-1)
    d = a[:, t, :, :, None] * d
    d = d + read_here if read == 'before' else d
    d = np.where(starts[:, t, None, None, None] != 0, 0.0, d)
  d_q, d_k = (
    _of_groups(x, np.shape(of)) for x, of in ((d_q, inputs.q), (d_k, inputs.k))
  )
  if loga.shape != a.shape:
    d_loga = d_loga.sum(-1, keepdims=True)
  return Inputs(d, d_q, d_k, d_v, d_loga)


def _run(inputs, starts):
  """Returns the states before and after each step, the decays, the inputs."""
  inputs = Inputs(*(np.asarray(x, np.float64) for x in inputs))
  state, q, k, v, loga = inputs
  q, k = (np.repeat(x, v.shape[2] // x.shape[2], 2) for x in (q, k))
  inputs = Inputs(state, q, k, v, loga)
  a = np.broadcast_to(np.exp(loga), k.shape)
  old, new = [], []
  for t in range(k.shape[1]):
    state = np.where(starts[:, t, None, None, None] != 0, 0.0, state)
    old.append(state)
    written = k[:, t, :, :, None] * v[:, t, :, None, :]
    state = a[:, t, :, :, None] * state + written
    new.append(state)
  return np.stack(old, 1), np.stack(new, 1), a, inputs


def _of_groups(d, shape):
  """Returns the sums of gradients over the heads of each group."""
  B, L, groups, K = shape
  return d.reshape(B, L, groups, -1, K).sum(3)
