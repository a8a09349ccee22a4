"""The parts of a model: the language model in it, its layers one by one."""

import flax.linen as nn
import jax

from rnn_jax.inference import layers
from rnn_jax.models import classifier
from rnn_jax.models import language_model

FIRST = 'embedding', 'positions'  # what stands before the layers


def body(
  model: nn.Module, params: dict
) -> tuple[language_model.LanguageModel, dict]:
  """Returns the language model that reads, and its parameters."""
  if isinstance(model, classifier.Classifier):
    return model.body.clone(parent=None), params['body']
  return model, params


def parts(params: dict) -> dict[str, dict[str, jax.Array]]:
  """Returns {part: {path: array}}, stacked layers one by one.

  Args:
    params: of a model, or a tree like them, as gradients and updates.

  Returns:
    Parts are 'embedding', 'layer 0', 'layer 1', 'head' and the like; those of
    a classifier's language model begin with 'body/'. See `place` for an order.
  """
  if 'body' in params:
    rest = {name: x for name, x in params.items() if name != 'body'}
    inner = {f'body/{name}': x for name, x in parts(params['body']).items()}
    return inner | {name: _flat(tree) for name, tree in rest.items()}
  return {
    name.replace('layer_', 'layer '): _flat(tree)
    for name, tree in layers.unstack(params).items()
  }


def place(part: str) -> tuple[int, int, int]:
  """Returns a key by which parts sort as a model runs them."""
  outer, _, name = part.rpartition('/')
  if name.startswith('layer '):
    return not outer, 1, int(name.removeprefix('layer '))
  return not outer, 0 if name in FIRST else 2, 0


def _flat(tree):
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): x
    for path, x in jax.tree.leaves_with_path(tree)
  }
