"""Gated DeltaNet-2: what a step erases and what it writes have gates apart.

    a = exp(-A softplus(W_2 W_1 x + d))        S' = diag(a_t) S_{t-1}
    S_t = S' + k_t (w_t * v_t - S'^T (b_t * k_t))^T        o_t = S_t^T q_t
    y = W_o [rms_norm(o) * sigmoid(V_2 V_1 x + c)]

with b = m sigmoid(W_b x), a gate of each key row, and w = sigmoid(W_w x), one
of each value; m is `max_beta`. Where each is one number, the same for b and w,
it is Kimi Delta Attention, whose decay and output gate it has (`kda`). q, k and
v follow from x as in `parts.delta`: a short convolution and a SiLU, queries and
keys of norm 1.

I - k (b * k)^T has the eigenvalue 1 - sum(b k^2) >= 1 - m and others of 1, but
isn't symmetric: where keys and gates of several rows alternate, a state that
decays slowly can grow, which no state of `kda` does.

It is the general form of ops/delta with r = a * b * k and w = -k. Shapes: q, k,
a, b BxLxHxK, v, w, o BxLxHxP, the state BxHxKxP and the inputs of the
convolution, BxWxE.
Source: Hatamizadeh, Choi and Kautz, "Gated DeltaNet-2: Decoupling Erase and
Write in Linear Attention", 2026.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.cells import base
from rnn_jax.cells import kda
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import delta

LOGICAL_AXES = kda.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(kda.Config):
  """Options of the cell, section `cell` of a config."""

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one head's projection."""
    widths = super().widths
    del widths['beta']
    gates = {'erase': self.key_width, 'write': self.value_width}
    low = {name: widths.pop(name) for name in kda.SHARED}  # the last ones
    return widths | gates | low


class Channels(NamedTuple):
  """The inputs of the recurrence."""

  q_BxLxHxK: jax.Array
  k_BxLxHxK: jax.Array
  v_BxLxHxP: jax.Array
  loga_BxLxHxK: jax.Array
  read_BxLxHxK: jax.Array
  write_BxLxHxK: jax.Array


class Cell(kda.Cell):
  """The cell; see the module's docstring."""

  def read(
    self,
    extra: jax.Array | None,
    parts: matrix.Parts,
    starts_BxL: jax.Array | None,
  ) -> tuple[jax.Array | None, Any]:
    config, loga = self.config, self.decay(parts)
    extra, mixed = self.mix(extra, parts, starts_BxL)
    q, k, v = mixed.values()
    erase, write = _gates(parts)
    read = jnp.exp(loga) * (config.max_beta * erase) * k
    v = (write * v).astype(v.dtype)
    return extra, Channels(q, k, v, loga, read, -k)

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: Any,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    return delta.general_recurrence(
      memory_BxHxKxP,
      *read,
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.chunk_length,
      operands=self.policy.of_recurrence(impl),
    )

  def gates(self, state: matrix.State, u: matrix.Parts) -> base.Gates:
    parts = matrix.at_one_step(u)
    erase, write = (gate[:, 0] for gate in _gates(parts))
    loga = self.decay(parts)[:, 0]
    values = {'keep': jnp.exp(loga), 'erase': erase, 'write': write}
    return base.Gates(values, loga)


def _gates(parts):
  """Returns b / m and w."""
  return (
    jax.nn.sigmoid(parts[name].astype(jnp.float32))
    for name in ('erase', 'write')
  )
