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
    classes       tokens_BxL, image_BxHxWxC or readings_BxLxW
                      -> logits_BxC, probabilities_BxC
    labels steps  readings_BxLxW -> logits_BxLxC
    a number      readings_BxLxW -> number_B
    forecasts     readings_BxLxW, calendar_BxLxF, and the covariates that there
                  are, known_BxLxHxK, inputs_BxLxC and categories_BxLxS
                      -> numbers_BxLxHxO

Classes and numbers are those of the text or series so far, probabilities
calibrated if the run is. Readings, covariates and forecasts are scaled; the O
numbers of each of the next H readings are quantiles, one point, the location,
scale and degrees of freedom of a Student-t distribution, or the mean and the
dispersion of a negative binomial one. The state's leaves are inputs and outputs
of their own, state.NAME and next_state.NAME.
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
from rnn_jax.data.series import labelled
from rnn_jax.inference import layers
from rnn_jax.interop.onnx import export_devices
from rnn_jax.models import classifier
from rnn_jax.models import language_model
from rnn_jax.models import series
from rnn_jax.runs import bundle as bundle_lib

STATE, NEXT = 'state.', 'next_state.'
COVARIATES = 'known_BxLxHxK', 'inputs_BxLxC', 'categories_BxLxS'
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
  """A module with a state, its parameters, and what goes in and comes out.

  Attributes:
    module: takes (state, *inputs).
    params: of the module.
    inputs: from B and L to the shapes of its inputs.
    outputs: from its result, without the state, to the graph's.
    arguments: from the inputs by name to those of the module.
  """

  module: Any
  params: bundle_lib.PyTree
  inputs: Callable[[Any, Any], Shapes]
  outputs: Callable[[Any], Arrays]
  arguments: Callable[[Arrays], tuple[Any, ...]] = lambda x: tuple(x.values())


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
  if config.task.series_label:
    model = _of_labelled_series(bundle)
  else:
    model = (_of_forecasts if config.task.reads_series else _of_text)(bundle)
  params = bundle_lib.flat(model.params)
  if config.model.bidirectional:
    return Exported([_whole(model)], params, {})
  first = jax.device_get(_named(jax.jit(lambda: _init(model, 1))()))
  programs = [_program(model, name) for name in ('step', 'row')]
  return Exported(programs, params, first)


def _of_text(bundle):
  config, vocabulary = bundle.config, bundle.tokenizer.size
  task = config.task
  if task.writes_text or task.labels_tokens:
    model = _plain(language_model.from_config(config, vocabulary))
    labels = bundle.tokenizer.unknown if task.labels_tokens else None
    return _Model(
      model,
      layers.unstack(bundle.params),
      _tokens,
      lambda logits: {'logits_BxLxV': logits[..., :labels]},
    )
  if not task.classifies:
    errors.refuse(
      'task.name', task.name, '--format=onnx has no form of its outputs'
    )
  model = classifier.from_config(config, bundle.tokenizer)
  body = language_model.BODY
  return _Model(
    model.clone(body=_plain(model.body)),
    bundle.params | {body: layers.unstack(bundle.params[body])},
    _tokens,
    lambda logits: _of_classes(bundle, logits[:, -1]),
  )


def _tokens(B, L):
  return {'tokens_BxL': jax.ShapeDtypeStruct((B, L), jnp.int32)}


def _of_labelled_series(bundle):
  config = bundle.config
  model = bundle_lib.make_task(config, bundle.tokenizer).model
  width, label = config.data.widths[0], config.task.series_label

  def inputs(B, L):
    return {'readings_BxLxW': jax.ShapeDtypeStruct((B, L, width), jnp.float32)}

  def outputs(out_BxLxO):
    if label == labelled.STEPS:
      return {'logits_BxLxC': out_BxLxO}
    if label == labelled.NUMBER:
      return {'number_B': out_BxLxO[:, -1, 0]}
    return _of_classes(bundle, out_BxLxO[:, -1])

  model = model.clone(plan=export_devices.PLAN)
  return _Model(model, bundle.params, inputs, outputs)


def _of_forecasts(bundle):
  model = bundle_lib.make_task(bundle.config, bundle.tokenizer).model
  sizes, kind = model.sizes, model.head_kind
  W, F, _ = bundle.config.data.widths

  def inputs(B, L):
    widths = {'readings_BxLxW': (W,), 'calendar_BxLxF': (F,)}
    own = (
      (sizes.horizon, sizes.known),
      (sizes.inputs,),
      (len(sizes.categories),),
    )
    besides = zip(COVARIATES, own, strict=True)
    widths |= {name: width for name, width in besides if width[-1]}
    return {
      name: jax.ShapeDtypeStruct(
        (B, L, *width), jnp.int32 if name == COVARIATES[-1] else jnp.float32
      )
      for name, width in widths.items()
    }

  def arguments(given):
    covariates = series.Covariates(*map(given.get, COVARIATES))
    return given['readings_BxLxW'], given['calendar_BxLxF'], None, covariates

  def outputs(forecasts):
    loc, scale = forecasts[1:]
    own = forecasts.numbers
    if kind == 'student_t':
      numbers = [own[0] * scale + loc, own[1] * scale, own[2]]
    elif kind == 'negative_binomial':
      numbers = [own[0] * scale, own[1]]
    else:
      numbers = [x * scale + loc for x in own]
    return {'numbers_BxLxHxO': jnp.stack(numbers, -1)}

  model = model.clone(plan=export_devices.PLAN)
  return _Model(model, bundle.params, inputs, outputs, arguments)


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

  def run(params, inputs):
    variables = {'params': bundle_lib.nested(params)}
    state = _init(model, next(iter(inputs.values())).shape[0])
    _, made = model.module.apply(variables, state, *model.arguments(inputs))
    return model.outputs(made)

  return Program('row', run, model.inputs(*_sizes('row')))


def _program(model, name):
  sizes = _sizes(name)
  own = model.inputs(*sizes)
  like = jax.eval_shape(lambda: _init(model, sizes[0]))
  tree, leaves = jax.tree.structure(like), _named(like)

  def run(params, inputs):
    variables = {'params': bundle_lib.nested(params)}
    state = jax.tree.unflatten(tree, [inputs[STATE + key] for key in leaves])
    given = model.arguments({key: inputs[key] for key in own})
    state, made = model.module.apply(variables, state, *given)
    new = {NEXT + key: x for key, x in _named(state).items()}
    return model.outputs(made) | new

  states = {STATE + key: x for key, x in leaves.items()}
  return Program(name, run, own | states)


def _sizes(name):
  """Returns B and L."""
  B, L = jax.export.symbolic_shape('B, L')
  return B, 1 if name == 'step' else L


def _init(model, B):
  return model.module.apply({}, B, method='init_state')


def _named(state):
  """Returns a state's leaves by path, as '1.0.memory_BxHxKxP', in order."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): x
    for path, x in jax.tree_util.tree_leaves_with_path(state)
  }
