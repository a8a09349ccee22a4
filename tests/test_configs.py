"""The models of configs/ have their documents' sizes; each config trains."""

import contextlib
import importlib
import json
import math

import jax
import numpy as np
import PIL.Image
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.sources import csv
from rnn_jax.data.sources import jsonl
from rnn_jax.data.sources import labelled_series
from rnn_jax.data.sources import series
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text.examples import dialogue
from rnn_jax.models import language_model
from rnn_jax.system import shipped
from rnn_jax.training import assembly
from rnn_jax.training import resolve
from rnn_jax.training import schedule
from tests.support import launchers
from tests.support import shared

# Files that a config asks for, and what a test hasn't the time to read.
LESS_DATA = {
  'data.length': 32,
  'data.batch_size': 4,
  'data.workers': 0,
  'evaluate.length': 32,
  'evaluate.batch_size': 4,
}
TEXT = {'data.source': 'text', 'data.path': '{folder}/text/*.txt'}
JSONL = {
  'data.path': '{folder}/train.jsonl',
  'data.validation_path': '{folder}/validation.jsonl',
}
IMAGES = {'data.length': 1, 'evaluate.length': 1}
OWN_DATA = {
  'bdh': TEXT,
  'chatgot': TEXT,
  'cifar10_bdh': IMAGES
  | {
    'data.source': 'images',
    'data.path': '{folder}/images',
    'data.image.size': 8,
    'data.image.crop': 1,
    'data.classes': ('dark', 'light'),
  },
  'daily_dialog': JSONL | {'data.vocabulary': 300, 'data.length': 64},
  'digits_bdh': IMAGES,
  'etth1': {
    'data.path': '{folder}/series.csv',
    'data.time': 'ds',
    'data.validation_path': '',
    'data.test_path': '{folder}/later.csv',
    'data.horizon': 4,
    'data.window': 24,
    'data.length': 64,
    'evaluate.length': 64,
  },
  'finetune': {'adapters.rank': 0},  # else it needs a run to begin with
  'gpt2': TEXT | {'data.vocabulary': 300, 'data.batch_size': 8},
  'hybrid': TEXT | {'data.boundaries': (32,), 'model.layers': 4},
  'large': TEXT
  | {
    'data.vocabulary': 300,
    'model.width': 64,
    'model.mlp_width': 64,
    'recurrence.impl': 'auto',
  },
  'long_range': {
    'data.length': 64,
    'evaluate.length': 64,
    'data.word_problem.test_length': 64,
    'data.word_problem.examples': 60,
  },
  'mad': {
    'data.mad.examples': 8,
    'data.mad.held_out': 4,
    'data.mad.length': 32,
    'data.boundaries': (32,),
  },
  'm4': {
    'data.path': '{folder}/series.csv',
    'data.test_path': '{folder}/later.csv',
    'data.horizon': 4,
    'data.window': 96,
  },
  'memory_lab': TEXT | {'data.vocabulary': 300},
  'published': TEXT | {'data.vocabulary': 300},
  'recall': {
    'data.length': 64,
    'evaluate.length': 64,
    'data.synthetic.examples': 60,
  },
  'rotten_tomatoes': JSONL | {'data.vocabulary': 300},
  'stdlib_bpe': TEXT | {'data.vocabulary': 300},
  'stdlib_bytes': TEXT,
  'tiny_shakespeare': TEXT,
}
LARGE = (  # models of configs/large.py
  'gated_deltanet',
  'mamba2',
  'gla',
  'kda',
  'rwkv7',
  'transformer',
  'simple_rnn',
)
# What runs of tests/tasks and tests/evaluation don't show, a smaller model.
SMALLER = {
  'train.steps': 2,
  'train.precision': 'float32',
  'model.width': 16,
  'model.layers': 1,
  'model.unroll': 1,
}
TRAINED = {
  'daily_dialog': {'sample.new_tokens': 2},
  'digits_bdh': {'cell.neurons': 16},
}


def parameters(raw, vocabulary):
  """Returns the number of parameters; computes nothing."""
  model = language_model.from_config(config_lib.parse(raw), vocabulary)
  tokens = jax.ShapeDtypeStruct((1, 1), 'int32')
  state = jax.eval_shape(lambda: model.apply({}, 1, method='init_state'))
  shapes = jax.eval_shape(model.init, jax.random.key(0), state, tokens)
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


# Emb V d + R (4 d^2 + 4 d + 2 d F + F + d + 4 d) + 2 d + d V + V by hand.
@pytest.mark.parametrize(
  ('size', 'count'),
  (
    ('tiny', 419_673),
    ('small', 3_205_209),
    ('medium', 10_715_993),
    ('gpt2', 85_192_793),
  ),
)
def test_chatgot_has_its_parameters_at_89_characters(size, count):
  module = importlib.import_module('configs.chatgot')
  assert parameters(module.get_config(size), 89) == count


def delta_net(D, H, K, P, taps=4):
  """The parameters of gated_deltanet, as docs/cells.md has them."""
  return (
    2 * D * H * (K + P) + D * H + taps * H * (2 * K + P) + D * H * (P + 1)
  ) + 2 * H


# 6 DeltaNets of 4 key heads and 8 value heads, 2 layers of attention with a
# gate and norms; in each layer norms, a router, 8 experts and a gate, besides
# the shared expert; a last norm, no bias of the head.
QWEN3_NEXT = (
  6 * (256 * (2 * 128 + 2 * 256 + 2 * 8) + 4 * (2 * 128 + 256))
  + 6 * (2 * 8 + 32 + 256**2)
  + 2 * (256 * (3 * 4 + 2 * 2) * 64 + 2 * 64)
  + 8 * (2 * 256 + 8 * 256 + 8 * 3 * 256 * 128 + 256)
  + (256 - 257)
)

# 6 Kimi Delta Attentions with maps of rank 32, 2 latent attentions of rank 64;
# in each layer norms, in the first an MLP, in 7 a router with its bias and 8
# experts besides the shared one; a last norm, no bias of the head.
KIMI_LINEAR = (
  6 * (256 * 4 * (3 * 32 + 1) + 4 * 4 * 3 * 32 + 4 * 32 * 256)
  + 6 * (2 * 32 * 256 + 2 * 4 * 32**2 + 4 + 4 * 32 + 32)
  + 2 * (256 * 4 * 48 + 256 * 80 + 64 + 64 * 4 * 64 + 4 * 32 * 256)
  + 8 * 2 * 256
  + 3 * 256 * (512 - 128)
  + 7 * (8 * 256 + 8 + 8 * 3 * 256 * 128)
  + (256 - 257)
)


@pytest.mark.parametrize(
  ('model', 'of_cells'),
  (
    ('qwen3_next', QWEN3_NEXT),
    ('kimi_linear', KIMI_LINEAR),
    # Taps, their bias and dt, the rate and the skip of each head.
    (
      'samba',
      3 * (8 * 193 * 256 + 2 * 32 * 256 + 5 * 576 + 3 * 8 + 4 * 256**2),
    ),
    (
      'recurrent_gemma',
      4 * (3 * 256**2 + 2 * 64 * 256 + 10 * 256 + 256)
      + 2 * 256 * (4 + 1 + 4 + 1) * 64,
    ),
  ),
)
def test_hybrids_have_their_layouts_and_parameters(model, of_cells):
  module = importlib.import_module('configs.hybrid')
  raw = module.get_config(model)
  assert raw.model.cells == module.MODELS[model][0]
  D, F, V = raw.model.width, raw.model.mlp_width, 257
  around = 2 * V * D + V + raw.model.layers * 3 * D * F
  assert parameters(raw, V) == around + of_cells


def test_an_unknown_hybrid_is_named():
  module = importlib.import_module('configs.hybrid')
  with pytest.raises(ValueError, match="hybrid.py:griffin: choose one of .*'s"):
    module.get_config('griffin')


def large(model, D):
  """The parameters of a model of configs/large.py, of width D, by hand."""
  F = -(-8 * D // 3 // 256) * 256
  R, mlp, norms = 24, 3 * D * F, 2 * D
  embedding, last = 2 * 32_000 * D, D
  match model:
    case 'gated_deltanet':
      H, K, P, R = 3 * D // 4 // 128, 128, 256, 21
      cell = 2 * D * H * (K + P) + 2 * D * H + H * P * D
      cell += 4 * H * (2 * K + P) + P + 2 * H
    case 'mamba2':
      H, K, P, R, mlp, norms = 2 * D // 64, 128, 64, 48, 0, D
      cell = D * (2 * H * P + 2 * K + H) + H * P * D
      cell += 5 * (H * P + 2 * K) + 3 * H + H * P
    case 'gla':
      H, K, P = 4, D // 8, D // 4
      cell = 2 * D * H * (K + P) + H * P * D
      cell += 16 * D + 17 * H * K + P
    case 'kda':
      H, K = D // 128, 128
      cell = 4 * D * H * K + D * H + 4 * H * 3 * K
      cell += 2 * 128 * (D + H * K) + H * K + H + H * K + K
    case 'rwkv7':
      # Ranks of decays, rates, gates and values; 6 shifts, 8 rows of numbers.
      ranks = 64 + 64 + 128 + 16
      cell = 4 * D * D + 2 * ranks * D + 6 * D + 8 * D
      mlp, norms, last = 2 * D * 4 * D + D, 4 * D, 2 * D + 2 * D
    case 'transformer':
      cell = 4 * D * D
    case 'simple_rnn':
      H, K, P = D // 128, 64, 128
      cell = D * H * (3 * K + 2 * P) + H * P * D
      cell += 4 * H * (2 * K + P) + H * K
  return embedding + last + R * (norms + mlp + cell)


@pytest.mark.parametrize('size', ('340m', '1b3'))
@pytest.mark.parametrize('model', LARGE)
def test_large_models_have_their_layouts_and_parameters(model, size):
  module = importlib.import_module('configs.large')
  assert [*module.MODELS] == [*LARGE]
  raw = module.get_config(f'{model}_{size}')
  assert raw.data.length * raw.data.batch_size == 65_536
  count = parameters(raw, raw.data.vocabulary)
  assert count == large(model, module.SIZES[size])
  least, most = {'340m': (3.4e8, 4e8), '1b3': (1.3e9, 1.5e9)}[size]
  assert least < count < most


@pytest.mark.parametrize('name', ('gla', 'gla_7b', 'lstm_1b3'))
def test_an_unknown_large_model_is_named(name):
  module = importlib.import_module('configs.large')
  with pytest.raises(errors.InputError, match=f'large.py:{name}: give one of'):
    module.get_config(name)


def test_finetuning_reads_the_samples_of_its_form():
  module = importlib.import_module('configs.finetune')
  read = {}
  for form in module.FORMS:
    config = config_lib.parse(module.get_config(form))
    documents = corpus_lib.load_documents(resolve.of_data(config))
    read[config.task.name] = documents['train'].names
  assert read['dialogue'][0] == 'D-01'
  assert [*read['language_modeling']] == [
    'story_one.txt',
    'story_two.txt',
  ]
  with pytest.raises(ValueError, match="finetune.py:pairs: choose one of .*'t"):
    module.get_config('pairs')


def test_an_unknown_size_is_named():
  module = importlib.import_module('configs.chatgot')
  with pytest.raises(ValueError, match="size='large': choose one of .*'gpt2'"):
    module.get_config('large')


def test_the_memory_lab_s_decoder_has_its_parameters():
  module = importlib.import_module('configs.memory_lab')
  raw = module.get_config()
  assert parameters(raw, raw.data.vocabulary) == 29_165_328


# 3 H K d + 2 V d by hand. V is 256 as published, 257 with the boundary.
@pytest.mark.parametrize(
  ('size', 'vocabulary', 'count'),
  (
    ('base', 256, 25_296_896),
    ('base', tokenizer.Bytes().size, 25_297_408),
    ('small', tokenizer.Bytes().size, 852_224),
  ),
)
def test_the_dragon_hatchling_has_its_parameters(size, vocabulary, count):
  module = importlib.import_module('configs.bdh')
  raw = module.get_config(size)
  assert raw.data.tokenizer == 'bytes'
  assert parameters(raw, vocabulary) == count


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  """The files that configs ask for."""
  folder = tmp_path_factory.mktemp('files')
  (folder / 'text').mkdir()
  for n in range(20):
    text = f'ROMEO:\nHow does {n} def look to {n * n} of you?\n' * 4
    (folder / 'text' / f'{n:02}.txt').write_text(text)
  rows = [
    {
      'text': f'a film {n % 7} times as good',
      'label': ('negative', 'positive')[n % 2],
      'turns': ['how are you ?', f'the {n % 5} of us are well'],
    }
    for n in range(24)
  ]
  lines = [json.dumps(row) for row in rows]
  (folder / 'train.jsonl').write_text('\n'.join(lines[:16]))
  (folder / 'validation.jsonl').write_text('\n'.join(lines[16:]))
  for name, length in (('series', 60), ('later', 4)):
    rows = [f'H{n},' + ','.join(map(str, range(n, n + length))) for n in (1, 2)]
    header = ','.join(f'V{n}' for n in range(length + 1))
    (folder / f'{name}.csv').write_text('\n'.join([header, *rows]))
  for label, level in (('dark', 60), ('light', 190)):
    (folder / 'images' / label).mkdir(parents=True)
    for n in range(24):
      pixels = np.full((8, 8, 3), level + n, np.uint8)
      PIL.Image.fromarray(pixels).save(folder / 'images' / label / f'{n}.png')
  return folder


def less_data(name, folder):
  return {
    key: value.format(folder=folder) if isinstance(value, str) else value
    for key, value in (LESS_DATA | OWN_DATA.get(name, {})).items()
  }


# A training step is a far larger trace than its loss: one of each task, and of
# each kind of cell.
STEPS = 'bdh', 'gpt2', 'long_range', 'recall', 'stdlib_bytes', 'rotten_tomatoes'


@pytest.mark.parametrize('name', sorted({*shipped.names()} - {*TRAINED}))
def test_each_config_s_steps_can_be_traced_for_its_data(name, folder, tmp_path):
  """The model has the size that it is shipped with: nothing is computed."""
  raw = importlib.import_module(f'configs.{name}').get_config()
  raw.update_from_flattened_dict(less_data(name, folder))
  resolved = resolve.resolve(config_lib.parse(raw))
  config = resolved.config
  with contextlib.closing(assembly.make(resolved, tmp_path)) as trainer:
    trainer.next_batch()
    rows_and_length = trainer.batch.weights_BxL.shape
    programs = trainer.programs
    trace = programs.trace_train if name in STEPS else programs.trace_evaluate
    (*_, batch), _ = trace(*rows_and_length).in_avals
    assert jax.tree.map(np.shape, trainer.batch) == jax.tree.map(
      np.shape, batch
    )
    if config.sample.new_tokens and config.task.writes_text:
      prompt = config.sample.prompt or config.data.prompt()
      assert not trainer.corpus.tokenizer.uncovered(prompt)


@pytest.mark.parametrize('name', TRAINED)
def test_replies_and_images_train_to_their_end(name, folder, tmp_path):
  changes = less_data(name, folder) | SMALLER | TRAINED[name]
  flags = [f'--config.{key}={value}' for key, value in changes.items()]
  with shared.programs():
    code, out, err = launchers.run(
      'train', f'--config={name}', f'--workdir={tmp_path}/run', *flags
    )
  assert code == 0, err
  assert 'trained: all steps' in out
  raw = importlib.import_module(f'configs.{name}').get_config()
  samples = raw.sample.new_tokens > 0
  assert out.count('\na sample after ') == samples
  assert '\nnone: ' not in out


def test_the_text_classifier_has_its_sample_beside_it():
  module = importlib.import_module('configs.text_classification')
  config = resolve.of_data(config_lib.parse(module.get_config()))
  assert config.data.classes == ('account', 'billing', 'bug', 'shipping')
  assert (config.data.field, config.data.label) == ('text', 'label')
  splits = csv.load(config.data)
  assert {x: len(splits[x]) for x in splits} == {
    'train': 320,
    'validation': 40,
    'test': 40,
  }
  assert splits['test'].names[0].startswith('T-')
  assert sum(x.stat().st_size for x in module.SAMPLE.parent.iterdir()) < 150_000


def test_the_sample_of_series_has_its_times_beside_it():
  module = importlib.import_module('configs.forecasting')
  config = resolve.of_data(config_lib.parse(module.get_config()))
  data = config.data
  assert (data.frequency, data.season, data.horizon) == ('h', 24, 48)
  splits = series.load(data)
  assert {x: splits[x].names for x in splits} == dict.fromkeys(
    ('train', 'validation', 'test'), ('library', 'pool')
  )


def test_the_sample_of_gestures_has_its_classes_in_all_splits():
  module = importlib.import_module('configs.series_classification')
  config = resolve.of_data(config_lib.parse(module.get_config()))
  data = config.data
  assert data.channels == ('x', 'y') and data.length == 23
  assert data.classes == ('circle', 'shake', 'swipe')
  splits = labelled_series.load(data)
  counts = {x: np.bincount(splits[x].labels).tolist() for x in splits}
  assert counts == {
    'train': [16, 16, 16],
    'validation': [3, 3, 3],
    'test': [3, 3, 3],
  }


def test_the_sample_of_dialogues_is_one():
  folder = importlib.import_module('configs.text_classification').SAMPLE.parent
  raw = importlib.import_module('configs.daily_dialog').get_config()
  raw.data.update(path=str(folder / 'dialogues.jsonl'), validation_path='')
  raw.data.splits = (80, 10, 10)
  config = config_lib.parse(raw)
  splits = jsonl.load(config.data)
  dialogue.check(splits, config)
  assert sum(map(len, splits.values())) == 60


@pytest.mark.parametrize('name', shipped.names())
def test_each_config_can_be_tried_for_a_few_steps(name):
  raw = importlib.import_module(f'configs.{name}').get_config()
  raw.train.steps = 5
  config = config_lib.parse(raw)
  rates = [schedule.make(config).rate(step) for step in range(5)]
  assert max(rates) == pytest.approx(raw.optimizer.learning_rate)
