"""Exported graphs, run by onnxruntime, against the models themselves."""

import dataclasses
import json
import os
import pkgutil
import sys

import jax
import numpy as np
import onnx
import onnx.reference
import pytest

from rnn_jax import cells
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import chat_template
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import model as model_lib
from rnn_jax.interop.formats import onnx as onnx_format
from rnn_jax.interop.onnx import weights as weights_lib
from rnn_jax.models import rounded_weights
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import subprocesses
from tests.support import bundles
from tests.support import classifiers
from tests.support import graphs

CELLS = sorted(
  module.name
  for module in pkgutil.iter_modules(cells.__path__)
  if not module.ispkg and module.name != 'base'
)
# Largest difference of logits in units of the largest. Measured: 5e-6.
TOLERANCE = 1e-5
V, L, CUT = 21, 11, 4
OPERATORS = {
  'gru': 'GRU',
  'lstm': 'LSTM',
  **dict.fromkeys(('mamba', 'qrnn', 'rg_lru'), 'Scan'),
  **dict.fromkeys(('gated_deltanet2', 'rwkv7'), 'Scan'),
  **dict.fromkeys(('min_lstm', 'rhn', 'slstm'), 'Scan'),
  **dict.fromkeys(('attention', 'latent_attention'), 'If'),
  'short_convolution': 'Concat',
}  # in a row; of others LinearAttention
# Parts of models beside the cell, and cells with other options.
VARIANTS = {
  'hybrid': {'cell': ('simple_rnn', 'latent_attention')},
  'experts': {'experts': {'count': 4, 'per_token': 2}},
  'shared layers, capped logits, a tied head': {
    'model': {'shared_layers': True, 'tied': True, 'logits_cap': 5.0}
  },
  'channel mix, sinusoids, a norm after': {
    'model': {'mlp': 'channel_mix', 'positions': 'sinusoidal'}
  },
  'MLPs after some cells, and multipliers': {
    'cell': ('mamba2', 'attention'),
    'options': {
      'mamba2': {'norm': 'before', 'min_step': 0.1}
      | {'multipliers': (0.5, 2.0, 1.5, 0.7, 1.2)},
      'attention': {'score_scale': 0.3},
    },
    'model': {'mlps': ('none', 'mlp'), 'mlp': 'squared_relu'}
    | {'residual_multiplier': 0.5, 'head_multiplier': 0.3},
  },
  'no taps before a step': {'cell': 'mamba', 'options': {'convolution': 1}},
  'renormed': {'model': {'block': 'renormed', 'mlp_width': 0}},
  'attention of a window with shared keys': {
    'cell': 'attention',
    'options': {'window': 5, 'kv_heads': 2, 'qk_norm': True, 'rotary_width': 8},
    'model': {'mlp': 'geglu'},
  },
  'attention to the highest scores': {
    'cell': 'attention',
    'options': {'top_k': 3},
  },
  'Luong attention': {'options': {'attention': 'dot', 'attention_window': 5}},
  'a block that layers share': {
    'cell': ('mamba2', 'mamba2'),
    'shared': {'count': 1, 'layers': (0, 1), 'heads': 2, 'mlp_width': 8},
  },
  'coupled': {'options': {'preset': 'coupled'}},
  'Mamba-3 with several inputs': {
    'cell': 'mamba3',
    'options': {'mimo_rank': 2, 'output_norm': True},
  },
  'GRU that resets before': {'cell': 'gru', 'options': {'reset': 'before'}},
  'RWKV-7 with values of the first layer': {
    'cell': 'rwkv7',
    'options': {'value_residual': True},
    'layers': 2,
  },
}


def raw_config(cell='simple_rnn', layers=1):
  """An unparsed config of a language model with one kind of cell, or several.

  `cell` is a name or a tuple of names.
  """
  raw = config_lib.default(cell)
  several = not isinstance(cell, str)
  raw.model.update(layers=2 if several else layers, width=8, mlp_width=12)
  if cell == 'bdh':
    raw.cell.update(neurons=16)
  raw.data.length = 24
  return raw


def draw(B=2, vocabulary=V):
  return np.random.default_rng(0).integers(0, vocabulary, (B, L), np.int32)


def differences(folder, tokens, wanted):
  """Differences of logits: of a row in parts, and of steps after the first."""
  row, step = (
    graphs.open_graph(folder / f'{name}.onnx') for name in ('row', 'step')
  )
  steps, *rest = np.split(tokens, [CUT, L - 1], 1)
  state, first = graphs.run(
    row, graphs.begin(folder, len(tokens)), tokens_BxL=steps
  )
  made = []
  for graph, parts in (
    (row, rest),
    (step, np.split(tokens[:, CUT:], L - CUT, 1)),
  ):
    own, logits = state, [first['logits_BxLxV']]
    for part in parts:
      own, results = graphs.run(graph, own, tokens_BxL=part)
      logits.append(results['logits_BxLxV'])
    made.append(relative(np.concatenate(logits, 1), wanted))
  return made


def relative(made, wanted):
  assert made.shape == wanted.shape
  return np.abs(made - wanted).max() / np.abs(wanted).max()


def by_reference(folder, tokens, wanted):
  """Difference of the logits of a row, by ONNX's own evaluator."""
  evaluator = onnx.reference.ReferenceEvaluator(onnx.load(folder / 'row.onnx'))
  feeds = graphs.begin(folder, len(tokens)) | {'tokens_BxL': tokens}
  (made,) = evaluator.run(['logits_BxLxV'], feeds)
  return relative(made, wanted)


def assert_same(bundle, folder):
  tokens = draw(vocabulary=bundle.tokenizer.size)
  wanted = bundles.logits(bundle, tokens)
  assert max(differences(folder, tokens, wanted)) < TOLERANCE
  assert by_reference(folder, tokens, wanted) < TOLERANCE


def operators(path):
  """The types of a graph's nodes, the outermost ones."""
  return {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize('cell', CELLS)
def test_a_cell(cell, tmp_path):
  bundle = bundles.make(raw_config(cell))
  folder = graphs.export(bundle, tmp_path / 'model')
  assert_same(bundle, folder)
  wanted = OPERATORS.get(cell, 'LinearAttention')
  assert wanted in operators(folder / 'row.onnx')


@pytest.mark.parametrize('name', VARIANTS)
def test_other_parts(name, tmp_path):
  variant = VARIANTS[name]
  raw = raw_config(variant.get('cell', 'simple_rnn'), variant.get('layers', 1))
  raw.model.update(variant.get('model', {}))
  raw.model.experts.update(variant.get('experts', {}))
  raw.model.shared_block.update(variant.get('shared', {}))
  raw.cell.update(variant.get('options', {}))
  bundle = bundles.make(raw)
  assert_same(bundle, graphs.export(bundle, tmp_path / 'model'))


@pytest.mark.parametrize(
  'cell', ('simple_rnn', 'gated_deltanet', 'deltaproduct')
)
def test_an_older_opset_has_loops(cell, tmp_path):
  bundle = bundles.make(raw_config(cell))
  folder = graphs.export(bundle, tmp_path / 'model', opset=21)
  assert_same(bundle, folder)
  assert 'LinearAttention' not in operators(folder / 'row.onnx')
  assert 'Scan' in operators(folder / 'row.onnx')
  assert 'Scan' not in operators(folder / 'step.onnx')


def test_a_model_always_gives_the_same_files(tmp_path):
  bundle = bundles.make(raw_config('attention'))
  folders = [
    graphs.export(bundle, tmp_path / name / 'model') for name in ('a', 'b')
  ]
  first, second = (
    {path.name: path.read_bytes() for path in folder.iterdir()}
    for folder in folders
  )
  assert first == second
  assert first.keys() == {
    'README.md',
    'interface.json',
    'row.onnx',
    'step.onnx',
    'weights.bin',
  }


def rounded(params, form):
  """Parameters as a format stores them."""
  if form == 'int8':
    return jax.jit(lambda x: rounded_weights.unpack(rounded_weights.pack(x)))(
      params
    )
  dtype = weights_lib.HALVES[form]
  return jax.tree.map(
    lambda x: x.astype(dtype).astype(np.float32) if x.ndim > 1 else x, params
  )


@pytest.mark.parametrize('form', weights_lib.FORMATS[1:])
def test_weights_of_fewer_bits(form, tmp_path):
  bundle = bundles.make(raw_config())
  folder = graphs.export(bundle, tmp_path / 'model', dtype=form)
  tokens = draw()
  # Without the axis of layers a vector isn't a matrix.
  params = bundle.params
  single = jax.tree.map(lambda x: x[0], params['stack']['blocks'])
  stack = jax.tree.map(lambda x: x[None], rounded(single, form))
  params = rounded({**params, 'stack': {}}, form)
  params |= {'stack': {'blocks': stack}}
  wanted = bundles.logits(
    bundle_lib.Bundle(bundle.config, bundle.tokenizer, params), tokens
  )
  assert max(differences(folder, tokens, wanted)) < TOLERANCE
  assert by_reference(folder, tokens, wanted) < TOLERANCE
  full = bundles.logits(bundle, tokens)
  assert relative(wanted, full) > 10 * TOLERANCE
  size = (folder / 'weights.bin').stat().st_size
  whole = sum(x.nbytes for x in jax.tree.leaves(bundle.params))
  assert size < 0.75 * whole


def alone(program, *arguments):
  """What a program of a folder prints in a process without the package."""
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  script = "import runpy, sys; sys.modules |= dict.fromkeys(('jax', 'rnn_jax'))"
  script += (
    "; sys.argv[:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')"
  )
  ended = subprocesses.run(
    [sys.executable, '-I', '-c', script, program, *arguments],
    variables=environment | {'PYTHONIOENCODING': 'utf-8'},
    timeout=300,
  )
  assert ended.code == 0, ended.err
  return ended.out


def test_a_process_without_the_package_writes_the_same_text(tmp_path):
  bundle = bundles.make(raw_config(), tokenizer_lib.Bytes())
  folder = graphs.export(bundle, tmp_path / 'model')
  assert {'generate.js', 'graphs.js', 'index.html'} < {
    path.name for path in folder.iterdir()
  }
  prompt = 'the gate'
  printed = alone(folder / 'generate.py', prompt, '20')
  (wanted,) = model_lib.Model(bundle).generate(
    prompt, max_new_tokens=20, temperature=0
  )
  assert wanted.text and '\n'.join(printed) == prompt + wanted.text


def test_a_process_without_the_package_finds_the_same_class(tmp_path):
  bundle = bundles.make(classifiers.raw_texts(), tokenizer_lib.Bytes())
  folder = graphs.export(bundle, tmp_path / 'model')
  assert {'classify.js', 'graphs.js', 'index.html'} < {
    path.name for path in folder.iterdir()
  }
  text = 'the gate ' * 20  # longer than a row: its end is cut off
  printed = [
    line.split(None, 1) for line in alone(folder / 'classify.py', text)
  ]
  (wanted,) = model_lib.Model(bundle).predict([text])
  assert printed[0][1] == wanted.label
  np.testing.assert_allclose(
    [float(probability) for probability, _ in printed],
    sorted(wanted.probabilities.values(), reverse=True),
    atol=1e-4,
  )


def classify(folder, ids):
  """Probabilities after a row, which equal those after steps, if there are."""
  state = graphs.begin(folder, len(ids))
  _, made = graphs.run(
    graphs.open_graph(folder / 'row.onnx'), state, tokens_BxL=ids
  )
  if not (folder / 'step.onnx').exists():
    return made
  step = graphs.open_graph(folder / 'step.onnx')
  for t in range(ids.shape[1]):
    state, single = graphs.run(step, state, tokens_BxL=ids[:, t : t + 1])
  for name, x in made.items():
    np.testing.assert_allclose(single[name], x, rtol=1e-4, atol=1e-6)
  return made


@pytest.mark.parametrize(
  ('pooling', 'bidirectional'), (('concat', False), ('last', True))
)
def test_a_classifier_of_texts(pooling, bidirectional, tmp_path):
  raw = classifiers.raw_texts(pooling=pooling, evidence=0.5, svm=1.0)
  raw.model.update(bidirectional=bidirectional, block='residual', layers=1)
  bundle = bundles.make(raw, tokenizer_lib.Bytes())
  folder = graphs.export(bundle, tmp_path / 'model')
  interface = json.loads((folder / 'interface.json').read_text())
  assert interface['classes'] == [*classifiers.CLASSES]
  assert (folder / 'step.onnx').exists() != bidirectional
  text = 'the state reads'
  boundary = [interface['boundary']]
  ids = np.array([[*boundary, *text.encode(), *boundary]], np.int32)
  made = classify(folder, ids)
  (wanted,) = model_lib.Model(bundle).predict(text)
  np.testing.assert_allclose(
    made['probabilities_BxC'][0],
    [*wanted.probabilities.values()],
    rtol=1e-4,
    atol=1e-6,
  )


def test_a_classifier_is_calibrated(tmp_path):
  bundle = bundles.make(classifiers.raw_texts(), tokenizer_lib.Bytes())
  bundle = dataclasses.replace(bundle, temperature=2.5)
  made = classify(
    graphs.export(bundle, tmp_path / 'model'), draw(vocabulary=257)
  )
  wanted = jax.nn.softmax(made['logits_BxC'] / 2.5)
  np.testing.assert_allclose(made['probabilities_BxC'], wanted, rtol=1e-5)


@pytest.mark.parametrize(
  ('cell', 'model'),
  (
    ({}, {'bidirectional': True}),
    ({'name': 'attention', 'sees': 'row', 'heads': 2, 'head_width': 4}, {}),
    ({'name': 'bdh', 'sees': 'row', 'neurons': 16}, {}),
  ),
  ids=('both directions', 'attention', 'bdh'),
)
def test_a_classifier_of_images(cell, model, tmp_path):
  options = dict(cell)
  raw = raw_config(options.pop('name', 'simple_rnn'))
  raw.task.name = 'image_classification'
  raw.data.update(source='images', layout='images', classes=classifiers.CLASSES)
  raw.data.image.update(size=classifiers.SIZE, channels=1)
  raw.vision.patch = 2
  raw.cell.update(options)
  raw.model.update(model)
  bundle = bundles.make(raw, tokenizer_lib.Bytes())
  folder = graphs.export(bundle, tmp_path / 'model')
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, (3, 4, 4, 1)).astype(np.uint8)
  graph = graphs.open_graph(folder / 'row.onnx')
  _, made = graphs.run(graph, {}, image_BxHxWxC=pixels)
  wanted = model_lib.Model(bundle).predict(pixels)
  for row, prediction in zip(made['probabilities_BxC'], wanted, strict=True):
    values = [*prediction.probabilities.values()]
    np.testing.assert_allclose(row, values, rtol=1e-4, atol=1e-6)


def test_a_tagger_gives_labels_only(tmp_path):
  raw = config_lib.default('min_lstm', task='tagging', source='text')
  raw.data.update(tokenizer='characters', length=8, boundaries=(8,))
  raw.model.update(layers=1, width=8, mlp_width=0)
  bundle = bundles.make(raw, tokenizer_lib.Characters('abc'))
  folder = graphs.export(bundle, tmp_path / 'model')
  interface = json.loads((folder / 'interface.json').read_text())
  ids = np.array([[interface['boundary'], 0, 2, 1, 1]], np.int32)
  state = graphs.begin(folder, 1)
  _, made = graphs.run(
    graphs.open_graph(folder / 'row.onnx'), state, tokens_BxL=ids
  )
  logits = made['logits_BxLxV']
  assert logits.shape == (1, 5, interface['labels'])
  (wanted,) = model_lib.Model(bundle).predict('acbb')
  labels = bundle.tokenizer.decode(logits[0, 1:].argmax(-1))
  assert labels == wanted.labels


def test_a_chat_template_comes_along(tmp_path):
  raw = raw_config()
  bundle = bundles.make(raw, tokenizer_lib.Bytes())
  template = chat_template.Template('{{ messages }}', {}, '')
  bundle.tokenizer.template = template
  folder = graphs.export(bundle, tmp_path / 'model')
  text = (folder / 'chat_template.jinja').read_text()
  assert text == template.text
  metadata = onnx.load(folder / 'row.onnx').metadata_props
  stored = {entry.key: entry.value for entry in metadata}
  assert stored['chat_template'] == text
  for name in 'interface', 'tokenizer':
    content = json.loads((folder / f'{name}.json').read_text())
    assert json.loads(stored[name]) == content


@pytest.mark.parametrize(
  ('options', 'message'),
  (
    ({'opset': 28}, '--opset=28: give 21 to 27'),
    ({'opset': 20, 'dtype': 'int8'}, '--opset=20: give 21 to 27'),
    ({'batch_size': 2}, "--batch_size is given, and this --format doesn't"),
    ({'max_shard_size': '1GB'}, '--max_shard_size is given'),
    ({'platforms': ('cpu',)}, '--platforms is given'),
  ),
)
def test_bad_options_are_refused(options, message, tmp_path):
  bundle = bundles.make(raw_config())
  with pytest.raises(errors.InputError, match=message):
    graphs.export(bundle, tmp_path / 'model', **options)
  assert not [*tmp_path.iterdir()]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
  monkeypatch.setattr(onnx_format, 'PACKAGE', 'not_installed')
  with pytest.raises(errors.InputError, match=r"pip install 'rnn_jax\[onnx\]'"):
    graphs.export(bundles.make(raw_config()), tmp_path / 'model')
  assert not [*tmp_path.iterdir()]
