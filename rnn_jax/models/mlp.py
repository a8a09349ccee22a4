"""The MLP of a block, from D to F to D.

It is gated, W_down (a(W_gate x) * W_up x) with a = swish or gelu for 'swiglu'
and 'geglu' (Shazeer, "GLU Variants Improve Transformer", 2020), or
W_down a(W_up x) for 'swish', 'gelu' and 'relu', with relu(.)^2 for
'squared_relu' (So et al., "Primer: Searching for Efficient Transformers for
Language Modeling", 2021). 'geglu_tanh' and 'gelu_tanh' have gelu with a tanh in
place of the error function (Hendrycks and Gimpel, "Gaussian Error Linear
Units", 2016). swish(x) = x sigmoid(beta x), with the
constant beta = model.swish_beta, silu at 1 (Ramachandran et al., "Searching for
Activation Functions", 2017).

'channel_mix' is W_down relu(W_up x~)^2 of x~ = x + (x' - x) * m, with x' the x
one step earlier, zero at the start of a document (Peng et al., "RWKV-7 'Goose'
with Expressive Dynamic State Evolution", 2025). It is the only MLP with a
state, x'; the block runs `TokenShift` before it.

On a mesh, its columns may be sharded.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import ad_checkpoint

from rnn_jax import config as config_lib
from rnn_jax.models import remat
from rnn_jax.ops import devices
from rnn_jax.ops import precision


def swish(x: jax.Array, beta: float) -> jax.Array:
  """Returns x sigmoid(beta x)."""
  return nn.silu(x) if beta == 1 else x * nn.sigmoid(beta * x)


def squared_relu(x: jax.Array) -> jax.Array:
  """Returns relu(x)^2."""
  return jnp.square(nn.relu(x))


ACTIVATIONS: dict[str, Callable[..., jax.Array]] = {
  'swiglu': swish,
  'swish': swish,
  'geglu': functools.partial(nn.gelu, approximate=False),
  'geglu_tanh': functools.partial(nn.gelu, approximate=True),
  'gelu': functools.partial(nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(nn.gelu, approximate=True),
  'relu': nn.relu,
  'squared_relu': squared_relu,
  'channel_mix': squared_relu,
}
GATED = ('swiglu', 'geglu', 'geglu_tanh')
WITH_BETA = ('swiglu', 'swish')
SHIFTED = ('channel_mix',)  # of x mixed with that one step earlier
LOGICAL_AXES = {
  'mlp_shift/share': 'D',
  'mlp/up/kernel': 'DxF',
  'mlp/up/bias': 'F',
  'mlp/gate/kernel': 'DxF',
  'mlp/gate/bias': 'F',
  'mlp/down/kernel': 'FxD',
  'mlp/down/bias': 'D+F',
}


def hidden(
  config: config_lib.Model, dense: Callable[[str], jax.Array]
) -> jax.Array:
  """Returns the hidden units ...xF.

  Args:
    config: the Model config.
    dense: returns W x of the matrix of a name, 'up' or 'gate'.
  """
  activate = ACTIVATIONS[config.mlp]
  if config.mlp in WITH_BETA:
    activate = functools.partial(activate, beta=config.swish_beta)
  up = dense('up')
  return activate(dense('gate')) * up if config.mlp in GATED else activate(up)


def shifts(config: config_lib.Model) -> bool:
  """Returns whether a block's MLP reads the step before, and has a state."""
  return config.mlp_width > 0 and config.mlp in SHIFTED


class TokenShift(nn.Module):
  """x~ in the module's docstring. The state is x', Bx1xD in float32."""

  @nn.compact
  def __call__(
    self,
    before_Bx1xD: jax.Array,
    x_BxLxD: jax.Array,
    starts_BxL: jax.Array | None,
  ) -> tuple[jax.Array, jax.Array]:
    """Returns (the input for the next step, x~_BxLxD)."""
    share_D = self.param('share', _init_share, x_BxLxD.shape[-1:])
    before, x_BxLx2xD = devices.current().windows(
      before_Bx1xD, x_BxLxD, 2, starts_BxL
    )
    change = x_BxLx2xD[:, :, 1] - x_BxLxD
    x = x_BxLxD + change * share_D[None, None].astype(x_BxLxD.dtype)
    return before.astype(jnp.float32), x


def _init_share(key, shape, dtype=jnp.float32):
  """Returns 1 - channel / D, as published for layer 1."""
  del key
  return 1 - jnp.arange(shape[0], dtype=dtype) / shape[0]


class Mlp(nn.Module):
  """See the module's docstring."""

  config: config_lib.Model
  policy: precision.Policy

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array) -> jax.Array:
    shards = devices.current().shards('F')
    width = self.config.mlp_width // shards
    x_BxLxD = devices.current().tp_copy(x_BxLxD) if shards > 1 else x_BxLxD
    units = hidden(self.config, lambda name: self._dense(width, name)(x_BxLxD))
    self.sow('intermediates', remat.HIDDEN, units)  # if that is mutable
    units = ad_checkpoint.checkpoint_name(units, remat.HIDDEN)
    y = self._dense(x_BxLxD.shape[-1], 'down')(units)
    return devices.current().tp_reduce(y) if shards > 1 else y

  def _dense(self, width, name):
    return nn.Dense(
      width,
      use_bias=self.config.biases,
      dtype=self.policy.activations,
      dot_general=self.policy.dot_general,
      name=name,
    )
