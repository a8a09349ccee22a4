"""ONNX operators as primitives of jax.

A model that is traced under export_devices.py has them in the place of its
recurrences. They can be traced, and not run: the definition of a recurrence is
its cell's step.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

NAME = 'onnx_operator'
_primitive = core.Primitive(NAME)
_primitive.multiple_results = True


@_primitive.def_abstract_eval
def _results(*inputs, results, **params):
  del inputs, params
  return [jax.core.ShapedArray(shape, jnp.float32) for shape in results]


def operator(
  name: str,
  inputs: Sequence[jax.Array | None],
  results: Sequence[tuple[Any, ...]],
  **attributes: Any,
) -> list[jax.Array]:
  """Returns the results of an operator, float32.

  Args:
    name: of the operator.
    inputs: float32; None: an optional one that isn't given.
    results: their shapes.
    **attributes: of the operator.
  """
  given = [x.astype(jnp.float32) for x in inputs if x is not None]
  return _primitive.bind(
    *given,
    name=name,
    given=tuple(x is not None for x in inputs),
    results=tuple(results),
    attributes=tuple(sorted(attributes.items())),
  )


def linear_attention(
  state_BxHxKxP: jax.Array,
  q_BxLxHxK: jax.Array,
  k_BxLxHxK: jax.Array,
  v_BxLxHxP: jax.Array,
  loga_BxLxHxK: jax.Array,
  beta_BxLxH: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Returns (state, y_BxLxHxP) of the gated recurrence, or of the delta rule.

  Args:
    state_BxHxKxP: before the first step.
    q_BxLxHxK: the queries.
    k_BxLxHxK: the keys.
    v_BxLxHxP: the values.
    loga_BxLxHxK: log-decays; the last axis is K or 1.
    beta_BxLxH: how much of its key's value a step replaces; None: the gated
      recurrence.
  """
  B, L, H, _ = q_BxLxHxK.shape
  P = v_BxLxHxP.shape[-1]
  arrays = q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK
  q, k, v, loga = (x.reshape(B, L, -1) for x in arrays)
  y, state = operator(
    'LinearAttention',
    (q, k, v, state_BxHxKxP, loga, beta_BxLxH),
    ((B, L, H * P), state_BxHxKxP.shape),
    q_num_heads=H,
    kv_num_heads=H,
    scale=1.0,
    update_rule='gated' if beta_BxLxH is None else 'gated_delta',
  )
  return state, y.reshape(B, L, H, P).astype(v_BxLxHxP.dtype)
