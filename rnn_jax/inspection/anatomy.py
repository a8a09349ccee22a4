"""The parts of a model: the body with the layers, and each layer."""

import flax.linen as nn
import jax

from rnn_jax.inference import layers
from rnn_jax.models import classifier
from rnn_jax.models import period

# Parts before the layers.
FIRST = 'embedding', 'patches', 'token', 'input', 'positions'


def body(model: nn.Module, params: dict) -> tuple[nn.Module, dict]:
  """Returns the model with the stack of layers, and its parameters.

  For a text classifier it is its language model, else the model itself.
  """
  if isinstance(model, classifier.Classifier):
    return model.body.clone(parent=None), params['body']
  return model, params


def is_recurrent(model: nn.Module) -> bool:
  """Returns whether the layers of a `body` carry a state from step to step.

  They don't if a step sees its whole row.
  """
  state = jax.eval_shape(lambda: period.init_state(model, 1))
  return bool(jax.tree.leaves(state))


def parts(params: dict) -> dict[str, dict[str, jax.Array]]:
  """Returns {part: {path: array}}, each layer of a stack separately.

  Args:
    params: of a model, or a tree like them, such as gradients and updates.

  Returns:
    Parts are 'embedding', 'layer 0', 'layer 1', 'head' and the like; layers
    that share their parameters are only 'layer 0'; those of a text classifier's
    language model begin with 'body/'. `place` is their order.
  """
  if 'body' in params:
    rest = {name: x for name, x in params.items() if name != 'body'}
    inner = {f'body/{name}': x for name, x in parts(params['body']).items()}
    return inner | {name: _flat(name, tree) for name, tree in rest.items()}
  return {
    name.replace('layer_', 'layer '): _flat(name, tree)
    for name, tree in layers.unstack(params).items()
  }


def place(part: str) -> tuple[int, int, int]:
  """Returns a key that sorts parts in the order in which a model runs."""
  outer, _, name = part.rpartition('/')
  if name.startswith('layer '):
    return not outer, 1, int(name.removeprefix('layer '))
  return not outer, 0 if name in FIRST else 2, 0


def _flat(name, tree):
  """Returns arrays by their path; a part of one array has its own name."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/') or name: x
    for path, x in jax.tree.leaves_with_path(tree)
  }
