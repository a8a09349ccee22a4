"""A model as a program that jax exports, with all that it takes to run it.

Of a model that writes text it is the decoding step,

    (state, logits_BxV) = step(params, state, token_B)

which reads prompts as well, one token at a time; the state is constant in size,
or has the size of the attention window. Of a classifier with a head it is

    probabilities_BxC = classify(params, tokens_BxL, starts_BxL)
    probabilities_BxC = classify(params, image_BxHxWxC)

Texts are right-aligned in rows of the longest text that the model reads;
`starts` is 1 up to the first id. The recurrence is in its plain form, a scan,
which runs on every platform: probabilities differ from launch.predict's in the
last digits.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.images import images
from rnn_jax.data.text.examples import classification
from rnn_jax.inference import classify
from rnn_jax.inference import decode
from rnn_jax.inference import layers
from rnn_jax.interop import standalone
from rnn_jax.interop import standalone_classify
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
  """An exported program.

  Attributes:
    name: of the program's file.
    exported: the program.
    tensors: {name of a file: its arrays by name}.
    interface: entries of interface.json, JSON-ready.
    script: (path, name) of the script that runs it.
  """

  name: str
  exported: jax.export.Exported
  tensors: dict[str, dict[str, np.ndarray]]
  interface: dict[str, Any]
  script: tuple[str, str]


def step(
  bundle: bundle_lib.Bundle, batch_size: int, platforms: tuple[str, ...]
) -> Program:
  """Returns the program of a model's decoding step."""
  model = layers.for_inference(
    language_model.from_config(bundle.config, bundle.tokenizer.size)
  )
  params = bundle_lib.flat(layers.unstack(bundle.params))
  init = jax.jit(lambda: model.apply({}, batch_size, method='init_state'))
  first = jax.device_get(init())
  tree, state = jax.tree.structure(first), _named(first)
  names = [*state]

  def run(params, state, token_B):
    state = jax.tree.unflatten(tree, [state[name] for name in names])
    variables = {'params': bundle_lib.nested(params)}
    state, logits = model.apply(variables, state, token_B[:, None])
    return _named(state), logits[:, 0]

  token_B = jax.ShapeDtypeStruct((batch_size,), jnp.int32)
  exported = _export(run, platforms, params, state, token_B)
  options = bundle.config.model
  learned = options.positions == 'learned'
  facts = {
    'vocabulary': bundle.tokenizer.size,
    'boundary': bundle.tokenizer.boundary,  # before a document
    'longest': options.max_positions if learned else 0,
  }
  inputs, outputs = ('params', 'state', 'token_B'), ('state', 'logits_BxV')
  return Program(
    'step',
    exported,
    {
      'parameters': params,
      'state': {name: np.asarray(x) for name, x in state.items()},
    },
    _interface(exported, batch_size, facts, inputs, outputs),
    (standalone.__file__, 'decode.py'),
  )


def _named(state):
  """Returns a state's leaves by path, as '1.0.memory_BxHxKxP', in order."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): x
    for path, x in jax.tree_util.tree_leaves_with_path(state)
  }


def probabilities(
  bundle: bundle_lib.Bundle, batch_size: int, platforms: tuple[str, ...]
) -> Program:
  """Returns the program of a classifier's probabilities."""
  config = dataclasses.replace(
    bundle.config,
    recurrence=config_lib.Recurrence('scan'),
    remat=config_lib.Remat(),
  )
  model = bundle_lib.make_task(config, bundle.tokenizer).model
  params = bundle_lib.flat(bundle.params)
  if config.task.reads_images:
    inputs, facts = _of_images(config, batch_size)
    function = classify.pixel_logits
  else:
    inputs, facts = _of_texts(config, bundle.tokenizer, batch_size)
    function = classify.text_logits

  def run(params, *arguments):
    logits_BxC = function(model, bundle_lib.nested(params), *arguments)
    return jax.nn.softmax(logits_BxC)

  exported = _export(run, platforms, params, *inputs.values())
  facts = {'classes': list(config.data.classes), **facts}
  names = ('params', *inputs), ('probabilities_BxC',)
  return Program(
    'classify',
    exported,
    {'parameters': params},
    _interface(exported, batch_size, facts, *names),
    (standalone_classify.__file__, 'classify.py'),
  )


def _of_texts(config, tokenizer, B):
  """Returns ({input: shape}, entries of interface.json)."""
  framing = classification.Framing(
    tokenizer, config.task, config.data, config.data.length
  )
  ints = functools.partial(jax.ShapeDtypeStruct, dtype=np.int32)
  shape = B, decode.padded_length(framing.room + 2)
  facts = {
    'vocabulary': tokenizer.size,
    'boundary': tokenizer.boundary,  # before and after a text
    'longest': framing.room,  # ids of a text; the rest is cut off
  }
  return {'tokens_BxL': ints(shape), 'starts_BxL': ints(shape)}, facts


def _of_images(config, B):
  shape = B, *images.shape(config.data.image)
  return {'image_BxHxWxC': jax.ShapeDtypeStruct(shape, np.uint8)}, {}


def _export(run, platforms, *arguments):
  like = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arguments
  )
  return jax.export.export(jax.jit(run), platforms=platforms)(*like)


def _interface(exported, batch_size, facts, inputs, outputs):
  """Returns the content of interface.json.

  Args:
    exported: the program.
    batch_size: its rows.
    facts: more entries.
    inputs: the names of the program's arguments.
    outputs: the names of its results; of one result, only its name.
  """
  arguments, _ = _described(exported.in_tree, exported.in_avals)
  results = _described(exported.out_tree, exported.out_avals)
  results = results if len(outputs) > 1 else (results,)
  return {
    'batch_size': batch_size,
    'platforms': list(exported.platforms),
    **facts,
    'jax': jax.__version__,
    'calling_convention': exported.calling_convention_version,
    'inputs': dict(zip(inputs, arguments, strict=True)),
    'outputs': dict(zip(outputs, results, strict=True)),
  }


def _described(tree, avals):
  """Returns a tree of texts such as 'float32[2, 21]'."""
  return jax.tree.map(
    lambda aval: f'{aval.dtype}{list(aval.shape)}',
    jax.tree.unflatten(tree, avals),
  )
