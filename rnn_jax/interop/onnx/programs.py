"""What is exported of a run's model: a step, and a row.

    (next_state, outputs) = step(state, inputs of one step)
    (next_state, outputs) = row(state, inputs of L steps)

Both have any number of rows B, and a row any number of steps L >= 1; a row is
split anywhere by giving its first part's state to the next one. A model of
images, and a bidirectional one, reads a whole row at once: it has no step and
no state. Everything is computed in float32 by the cell's plain form.

Inputs and outputs, named as in the package:

    writes text   tokens_BxL -> logits_BxLxV
    labels        tokens_BxL -> logits_BxLxV, of V labels
    classes       tokens_BxL or image_BxHxWxC -> logits_BxC, probabilities_BxC

Classes are those of the text so far, probabilities calibrated if the run is.
The state's leaves are inputs and outputs of their own, state.NAME and
next_state.NAME.
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.inference import layers
from rnn_jax.interop.onnx import export_devices
from rnn_jax.models import classifier
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib

STATE, NEXT = 'state.', 'next_state.'
Arrays = dict[str, jax.Array]
Shapes = dict[str, jax.ShapeDtypeStruct]


class Program(NamedTuple):
  """A function that is to be traced.

  Attributes:
    name: 'step' or 'row'.
    run: (parameters by name, inputs by name) -> outputs by name.
    inputs: their shapes, with symbolic dimensions; the first has all of them.
  """

  name: str
  run: Callable[[Arrays, Arrays], Arrays]
  inputs: Shapes


class Exported(NamedTuple):
  """What is exported of a model.

  Attributes:
    programs: of the model.
    params: its parameters by name.
    state: the state before a row, of one row, by name.
  """

  programs: list[Program]
  params: dict[str, np.ndarray]
  state: dict[str, np.ndarray]


class _Model(NamedTuple):
  """A module, its parameters, and what it returns of one row."""

  module: Any
  params: bundle_lib.PyTree
  outputs: Callable[[jax.Array], Arrays]


def of(bundle: bundle_lib.Bundle) -> Exported:
  """Returns what is exported of a model.

  Raises:
    InputError: its task has no export.
  """
  config = dataclasses.replace(
    bundle.config,
    train=dataclasses.replace(
      bundle.config.train, precision='float32', quantized=''
    ),
    remat=config_lib.Remat(),
  )
  bundle = dataclasses.replace(bundle, config=config)
  if config.task.reads_images:
    return _of_images(bundle)
  model = _of_text(bundle)
  if config.model.bidirectional:
    programs, first = [_whole(model)], {}
  else:
    first = jax.device_get(_named(jax.jit(lambda: _init(model, 1))()))
    programs = [_program(model, name) for name in ('step', 'row')]
  params = bundle_lib.flat(model.params)
  return Exported(
    programs, params, {k: np.asarray(x) for k, x in first.items()}
  )


def _of_text(bundle):
  config, vocabulary = bundle.config, bundle.tokenizer.size
  task = config.task
  if task.writes_text or task.labels_tokens:
    model = _plain(language_model.from_config(config, vocabulary))
    labels = bundle.tokenizer.unknown if task.labels_tokens else None
    return _Model(
      model,
      layers.unstack(bundle.params),
      lambda logits: {'logits_BxLxV': logits[..., :labels]},
    )
  if not task.classifies:
    errors.refuse(
      'task.name', task.name, '--format=onnx has no form of its outputs'
    )
  model = classifier.from_config(config, vocabulary)
  body = language_model.BODY
  return _Model(
    model.clone(body=_plain(model.body)),
    bundle.params | {body: layers.unstack(bundle.params[body])},
    lambda logits: _of_classes(bundle, logits[:, -1]),
  )


def _plain(model):
  return layers.for_inference(model).clone(plan=export_devices.PLAN)


def _of_classes(bundle, logits_BxC):
  scaled = logits_BxC / (bundle.temperature or 1.0)
  return {
    'logits_BxC': logits_BxC,
    'probabilities_BxC': jax.nn.softmax(scaled),
  }


def _of_images(bundle):
  config = bundle.config
  model = bundle_lib.make_task(config, bundle.tokenizer).model
  model = model.clone(plan=export_devices.PLAN)

  def run(params, inputs):
    variables = {'params': bundle_lib.nested(params)}
    return _of_classes(bundle, model.apply(variables, inputs['image_BxHxWxC']))

  (B,) = jax.export.symbolic_shape('B')
  shape = B, *images.shape(config.data.image)
  inputs = {'image_BxHxWxC': jax.ShapeDtypeStruct(shape, np.uint8)}
  program = Program('row', run, inputs)
  return Exported([program], bundle_lib.flat(bundle.params), {})


def _whole(model):
  """The program of a row without a past, and without a state."""
  tokens = _tokens('row')

  def run(params, inputs):
    variables = {'params': bundle_lib.nested(params)}
    tokens = inputs['tokens_BxL']
    state = _init(model, tokens.shape[0])
    _, logits = model.module.apply(variables, state, tokens)
    return model.outputs(logits)

  return Program('row', run, {'tokens_BxL': tokens})


def _program(model, name):
  tokens = _tokens(name)
  like = jax.eval_shape(lambda: _init(model, tokens.shape[0]))
  tree, leaves = jax.tree.structure(like), _named(like)

  def run(params, inputs):
    variables = {'params': bundle_lib.nested(params)}
    state = jax.tree.unflatten(tree, [inputs[STATE + key] for key in leaves])
    state, logits = model.module.apply(variables, state, inputs['tokens_BxL'])
    new = {NEXT + key: x for key, x in _named(state).items()}
    return model.outputs(logits) | new

  inputs = {'tokens_BxL': tokens}
  inputs |= {STATE + key: x for key, x in leaves.items()}
  return Program(name, run, inputs)


def _tokens(name):
  B, L = jax.export.symbolic_shape('B, L')
  shape = (B, 1) if name == 'step' else (B, L)
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def _init(model, B):
  return model.module.apply({}, B, method='init_state')


def _named(state):
  """Returns a state's leaves by path, as '1.0.memory_BxHxKxP', in order."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): x
    for path, x in jax.tree_util.tree_leaves_with_path(state)
  }
