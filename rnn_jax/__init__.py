"""rnn_jax: train and serve recurrent sequence models in JAX.

    import rnn_jax

    model = rnn_jax.load('runs/demo')  # docs/inference.md
    rnn_jax.layers, rnn_jax.ops  # the parts to build models with

Importing rnn_jax imports nothing else: launchers settle the environment before
jax starts. Each name below is imported when it is used.
"""

import importlib
from typing import TYPE_CHECKING
from typing import Any

from rnn_jax.version import __version__

if TYPE_CHECKING:
  from rnn_jax import layers as layers
  from rnn_jax import ops as ops
  from rnn_jax.inference.model import load as load

__all__ = ['__version__', 'layers', 'load', 'ops']


def __getattr__(name: str) -> Any:
  if name == 'load':
    importlib.import_module('rnn_jax.system.supported').check('rnn_jax.load')
    return importlib.import_module('rnn_jax.inference.model').load
  if name in ('layers', 'ops'):
    return importlib.import_module(f'rnn_jax.{name}')
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
  return [*__all__]
