"""Both recurrences in float64 NumPy, loops written from the equations.

The delta rule, its decay first, and the gradients for E = dL/dS_t given:

    S' = diag(a_t) S_{t-1}    e = v_t - S'^T k_t    S_t = S' + b_t k_t e^T
    y_t = S_t^T q_t

    E += q_t dy_t^T        dq = S_t dy        de = b E^T k      dv = de
    dk = b E e - S' de     db = k^T E e       dS' = E - k de^T
    da = sum_P dS' * S_{t-1}                  E <- diag(a) dS'

The general form, which reads the state before its decay:

    u = S_{t-1}^T r_t    S_t = diag(a_t) S_{t-1} + k_t v_t^T + w_t u^T

    dk = E v    dv = E^T k    dw = E u    du = E^T w    dr = S_{t-1} du
    da = sum_P E * S_{t-1}                E <- diag(a) E + r du^T

Where a document starts, S_{t-1} counts as zero and receives no gradient.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Delta(NamedTuple):
  """Arguments that have gradients, in the order of delta.recurrence."""

  state: npt.ArrayLike
  q: npt.ArrayLike
  k: npt.ArrayLike
  v: npt.ArrayLike
  loga: npt.ArrayLike
  beta: npt.ArrayLike


class General(NamedTuple):
  """Arguments that have gradients, in the order of delta.general_recurrence."""

  state: npt.ArrayLike
  q: npt.ArrayLike
  k: npt.ArrayLike
  v: npt.ArrayLike
  loga: npt.ArrayLike
  read: npt.ArrayLike
  write: npt.ArrayLike


Inputs = Delta | General


def forward(
  inputs: Inputs, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (state_BxHxKxP, y_BxLxHxP), float64.

  Args:
    inputs: the arguments of either form.
    starts: BxL, nonzero where a document begins.
  """
  _, new, _, x = _run(inputs, starts)
  return new[:, -1], np.einsum('blhkp,blhk->blhp', new, x.q)


def backward(
  inputs: Inputs, starts: np.ndarray, d_state: np.ndarray, d_y: np.ndarray
) -> Inputs:
  """Returns the gradients, of the type of `inputs`, in float64.

  Args:
    inputs: as in `forward`.
    starts: as in `forward`.
    d_state: the gradient of the final state, BxHxKxP.
    d_y: the gradient of y, BxLxHxP.
  """
  old, new, a, x = _run(inputs, starts)
  d_y, E = np.asarray(d_y, np.float64), np.asarray(d_state, np.float64)
  d_q = np.einsum('blhkp,blhp->blhk', new, d_y)
  steps: list[tuple[np.ndarray, ...]] = []
  back = _delta_back if isinstance(x, Delta) else _general_back
  for t in reversed(range(a.shape[1])):
    E = E + _outer(x.q[:, t], d_y[:, t])
    E, *gradients = back(E, old[:, t], a[:, t], _at(x, t))
    E = np.where(starts[:, t, None, None, None] != 0, 0.0, E)
    steps.append(tuple(gradients))
  d_k, d_v, d_a, *others = (
    np.stack(each[::-1], 1) for each in zip(*steps, strict=True)
  )
  d_loga = a * d_a
  if x.loga.shape != a.shape:
    d_loga = d_loga.sum(-1, keepdims=True)
  return type(x)(E, d_q, d_k, d_v, d_loga, *others)


def _delta_back(E, old, a, x):
  decayed = a[..., None] * old
  e = x.v - _read(decayed, x.k)
  beta = x.beta[..., None]
  from_k = _read(E, x.k)
  d_e = beta * from_k
  d_k = beta * _write(E, e) - _write(decayed, d_e)
  d_decayed = E - _outer(x.k, d_e)
  d_a = (d_decayed * old).sum(-1)
  return a[..., None] * d_decayed, d_k, d_e, d_a, (from_k * e).sum(-1)


def _general_back(E, old, a, x):
  u, d_u = _read(old, x.read), _read(E, x.write)
  d_old = a[..., None] * E + _outer(x.read, d_u)
  d_a = (E * old).sum(-1)
  d_v = _read(E, x.k)
  return d_old, _write(E, x.v), d_v, d_a, _write(old, d_u), _write(E, u)


def _run(inputs, starts):
  """Returns the states before and after each step, the decays, the inputs."""
  x = type(inputs)(*(np.asarray(x, np.float64) for x in inputs))
  a = np.broadcast_to(np.exp(x.loga), x.k.shape)
  state, old, new = x.state, [], []
  for t in range(a.shape[1]):
    state = np.where(starts[:, t, None, None, None] != 0, 0.0, state)
    old.append(state)
    state = _step(state, a[:, t], _at(x, t))
    new.append(state)
  return np.stack(old, 1), np.stack(new, 1), a, x


def _step(state, a, x):
  decayed = a[..., None] * state
  if isinstance(x, Delta):
    e = x.v - _read(decayed, x.k)
    return decayed + _outer(x.beta[..., None] * x.k, e)
  written = _outer(x.k, x.v) + _outer(x.write, _read(state, x.read))
  return decayed + written


def _at(inputs, t):
  return inputs._replace(
    **{
      name: getattr(inputs, name)[:, t]
      for name in inputs._fields
      if name != 'state'
    }
  )


def _outer(x_BxHxK, y_BxHxP):
  return x_BxHxK[..., None] * y_BxHxP[..., None, :]


def _read(state, x_BxHxK):
  return np.einsum('bhkp,bhk->bhp', state, x_BxHxK)


def _write(state, x_BxHxP):
  return np.einsum('bhkp,bhp->bhk', state, x_BxHxP)
