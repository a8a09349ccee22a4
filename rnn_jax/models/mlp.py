"""The MLP of a block, from D to F to D.

It is gated, W_down (a(W_gate x) * W_up x) with a = swish or gelu for 'swiglu'
and 'geglu' (Shazeer, "GLU Variants Improve Transformer", 2020), or
W_down a(W_up x) for 'swish', 'gelu' and 'relu'. 'geglu_tanh' and 'gelu_tanh'
have gelu with a tanh in place of the error function (Hendrycks and Gimpel,
"Gaussian Error Linear Units", 2016). swish(x) = x sigmoid(beta x), with the
constant beta = model.swish_beta, silu at 1 (Ramachandran et al., "Searching for
Activation Functions", 2017).

On a mesh, its columns may be sharded.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
from jax import ad_checkpoint

from rnn_jax import config as config_lib
from rnn_jax.models import remat
from rnn_jax.ops import devices
from rnn_jax.ops import precision


def swish(x: jax.Array, beta: float) -> jax.Array:
  """Returns x sigmoid(beta x)."""
  return nn.silu(x) if beta == 1 else x * nn.sigmoid(beta * x)


ACTIVATIONS: dict[str, Callable[..., jax.Array]] = {
  'swiglu': swish,
  'swish': swish,
  'geglu': functools.partial(nn.gelu, approximate=False),
  'geglu_tanh': functools.partial(nn.gelu, approximate=True),
  'gelu': functools.partial(nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(nn.gelu, approximate=True),
  'relu': nn.relu,
}
GATED = ('swiglu', 'geglu', 'geglu_tanh')
WITH_BETA = ('swiglu', 'swish')
LOGICAL_AXES = {
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
