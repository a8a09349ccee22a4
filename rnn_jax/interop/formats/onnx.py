"""Exports a model as ONNX graphs (interop/onnx).

A folder has all that it takes to run it with onnxruntime, in Python, a browser
or an app:

    step.onnx        one step: of models with a state
    row.onnx         a row of any length
    weights.bin      the parameters, which both read
    interface.json   inputs, outputs, the state before a row, classes, boundary
    tokenizer.json   the vocabulary, of package `tokenizers`; a vocabulary of
                     numbers has none
    chat_template.jinja    of a model with one
    README.md        the model card

and programs that use it: generate.py of a model that writes text or classify.py
of one that classifies it, and in a browser index.html, generate.js or
classify.js, and graphs.js.
"""

import importlib.util
from importlib import resources

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples
from rnn_jax.data.text.examples import classification
from rnn_jax.interop import model_card
from rnn_jax.interop import request
from rnn_jax.interop import standard_tokenizer
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

PACKAGE = 'onnx'
PROGRAMS = 'rnn_jax.interop.onnx'  # folder of the examples


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes the folder, which is complete or absent at any time.

  Raises:
    InputError: the package onnx isn't installed, the model has a part without
      an ONNX form, an option has no effect, or the folder can't be written.
  """
  target.refuse('batch_size', 'platforms', 'max_shard_size')
  if importlib.util.find_spec(PACKAGE) is None:
    errors.refuse(
      '--format',
      'onnx',
      "it needs the package onnx: pip install 'rnn_jax[onnx]'",
    )
  from rnn_jax.interop.onnx import model_file
  from rnn_jax.interop.onnx import programs
  from rnn_jax.interop.onnx import weights as weights_lib

  task = bundle.config.task
  form = target.dtype_of(weights_lib.FORMATS) or weights_lib.FORMATS[0]
  opset = model_file.check_opset(target.opset)
  exported = programs.of(bundle)
  weights = weights_lib.Weights(exported.params, form)
  interface = _interface(bundle, exported, form)
  texts = {'interface': files.to_json(interface)}
  vocabulary = None
  if not (task.reads_images or task.reads_series):
    vocabulary = standard_tokenizer.describe(bundle.tokenizer)
  if vocabulary is not None:
    texts['tokenizer'] = files.to_json(vocabulary)
  if bundle.tokenizer.template is not None:
    texts['chat_template'] = bundle.tokenizer.template.text
  models = {
    program.name: model_file.build(
      program, weights, exported.params, texts, opset
    )
    for program in exported.programs
  }
  with target.folder() as part:
    for name, model in models.items():
      content = model.SerializeToString(deterministic=True)
      (part / f'{name}.onnx').write_bytes(content)
    with (part / weights_lib.FILE).open('wb') as file:
      weights.write(file)
    _dump(part / 'interface.json', interface)
    if vocabulary is not None:
      _write_vocabulary(part, bundle, vocabulary)
      if task.writes_text and 'step' in models:
        _write_examples(part, 'generate')
      elif task.classifies and not task.writes_text:
        _write_examples(part, 'classify')
    card = model_card.of_programs(bundle, 'ONNX', form)
    model_card.write(part, bundle, target, card)


def _write_vocabulary(folder, bundle, vocabulary):
  """Writes what turns texts into ids."""
  _dump(folder / 'tokenizer.json', vocabulary)
  if (template := bundle.tokenizer.template) is not None:
    path = folder / 'chat_template.jinja'
    path.write_text(template.text, encoding='utf-8')


def _write_examples(folder, name):
  """Writes programs that run the graphs alone: in Python, and in a browser."""
  source = resources.files(PROGRAMS)
  for path, written in (
    (f'standalone_{name}.py', f'{name}.py'),
    (f'page/{name}.js', f'{name}.js'),
    ('page/graphs.js', 'graphs.js'),
    ('page/index.html', 'index.html'),
  ):
    (folder / written).write_bytes((source / path).read_bytes())


def _interface(bundle, exported, form):
  """Returns the content of interface.json."""
  from rnn_jax.interop.onnx import programs

  config = bundle.config
  facts = {'task': config.task.name, 'weights': form}
  if config.task.reads_series:
    facts['series'] = _of_series(bundle)
  elif not config.task.reads_images:
    facts |= _of_text(bundle)
  by_step = config.task.series_label == labelled.STEPS
  if by_step or config.task.classifies and not config.task.writes_text:
    facts['classes'] = list(config.data.classes)
  if config.task.labels_tokens:
    facts['labels'] = bundle.tokenizer.unknown
  state = {
    name: _described(x, exported.programs[0].inputs[programs.STATE + name])
    for name, x in exported.state.items()
  }
  inputs = {
    program.name: {
      name: f'{x.dtype}[{", ".join(map(str, x.shape))}]'
      for name, x in program.inputs.items()
    }
    for program in exported.programs
  }
  return facts | {'inputs': inputs, 'state': state}


def _of_text(bundle):
  config, tokenizer = bundle.config, bundle.tokenizer
  options = config.model
  longest = options.max_positions if options.positions == 'learned' else 0
  if config.task.classifies and not config.task.writes_text:
    framing = classification.Framing(
      tokenizer, config.task, config.data, config.data.length
    )
    longest = framing.room  # ids of a text; the rest is cut off
  return {
    'vocabulary': tokenizer.size,
    'boundary': tokenizer.boundary,
    'longest': longest,
  }


def _of_series(bundle):
  """Returns what readings and outputs are, and the scales of series."""
  data, task = bundle.config.data, bundle.config.task
  if not task.series_label:
    facts = {
      'targets': data.readings,
      'known': data.known,
      'observed': data.observed,
      'static': data.static,
      'window': data.window,
      'horizon': data.horizon,
      'season': data.season,
      'head': task.head,
      'levels': task.quantiles,
    }
  else:
    facts = {'channels': data.channels, 'window': data.window}
    if task.series_label == labelled.NUMBER:
      scale = labelled_examples.target_scale(bundle.tokenizer, data)
      facts |= {'number': {'location': scale.loc, 'scale': scale.scale}}
  return facts | bundle.tokenizer.spec()


def _described(x, like):
  """Returns a leaf of the state before a row, which has one value."""
  number = 0.0  # of none
  if x.size:
    (number,) = np.unique(x).tolist()
  # JSON has no infinity; Python's float and JavaScript's Number read this.
  if not np.isfinite(number):
    number = str(number).replace('inf', 'Infinity')
  shape = [size if isinstance(size, int) else str(size) for size in like.shape]
  return {'shape': shape, 'dtype': str(x.dtype), 'value': number}


def _dump(path, value):
  text = files.to_json(value, indent=1) + '\n'
  path.write_text(text, encoding='utf-8')
