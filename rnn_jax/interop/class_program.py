"""The probabilities of a classifier with a head, as an exported program.

    probabilities_BxC = classify(params, tokens_BxL, starts_BxL)
    probabilities_BxC = classify(params, image_BxHxWxC)

Texts are right-aligned in rows of the longest text that the model reads;
`starts` is 1 up to the first id. The recurrence is in its plain form, a scan,
which runs on every platform: probabilities differ from launch.predict's in the
last digits.
"""

import dataclasses
import functools

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.images import images
from rnn_jax.data.text.examples import classification
from rnn_jax.inference import classify
from rnn_jax.inference import decode
from rnn_jax.interop import program as program_lib
from rnn_jax.interop import standalone_classify
from rnn_jax.runs import bundle as bundle_lib


def make(
  bundle: bundle_lib.Bundle, batch_size: int, platforms: tuple[str, ...]
) -> program_lib.Program:
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

  like = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in params.items()}
  export = jax.export.export(jax.jit(run), platforms=platforms)
  return program_lib.Program(
    'classify',
    export(like, *inputs.values()),
    {'parameters': params},
    {'classes': list(config.data.classes), **facts},
    ('params', *inputs),
    ('probabilities_BxC',),
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
