"""The parts of a model: what has the layers in it, its layers one by one."""

import flax.linen as nn
import jax

from rnn_jax.inference import layers
from rnn_jax.models import blocks
from rnn_jax.models import classifier

# What stands before the layers.
FIRST = 'embedding', 'patches', 'token', 'positions'


def body(model: nn.Module, params: dict) -> tuple[nn.Module, dict]:
  """Returns the model that has the stack of layers, and its parameters.

  It is a text classifier's language model, else the model itself.
  """
  if isinstance(model, classifier.Classifier):
    return model.body.clone(parent=None), params['body']
  return model, params


def is_recurrent(model: nn.Module) -> bool:
  """Whether the layers of a `body` have a state, which goes from step to step.

  They have none where a step sees all of its row.
  """
  cell = blocks.make_cell(model, parent=None)
  return bool(jax.tree.leaves(jax.eval_shape(lambda: cell.init_state(1))))


def parts(params: dict) -> dict[str, dict[str, jax.Array]]:
  """Returns {part: {path: array}}, stacked layers one by one.

  Args:
    params: of a model, or a tree like them, as gradients and updates.

  Returns:
    Parts are 'embedding', 'layer 0', 'layer 1', 'head' and the like, of layers
    that share their parameters 'layer 0' alone; those of a text classifier's
    language model begin with 'body/'. See `place` for an order.
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
  """Returns a key by which parts sort as a model runs them."""
  outer, _, name = part.rpartition('/')
  if name.startswith('layer '):
    return not outer, 1, int(name.removeprefix('layer '))
  return not outer, 0 if name in FIRST else 2, 0


def _flat(name, tree):
  """Arrays by their path; one that is a part by itself has the part's name."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/') or name: x
    for path, x in jax.tree.leaves_with_path(tree)
  }
