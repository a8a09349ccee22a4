"""The models of configs/ have the sizes that their documents give."""

import importlib
import math

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data import columns
from rnn_jax.data.sources import csv
from rnn_jax.data.sources import jsonl
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text.examples import dialogue
from rnn_jax.models import language_model


def parameters(raw, vocabulary):
  """Returns the number of parameters; computes nothing."""
  model = language_model.from_config(config_lib.parse(raw), vocabulary)
  tokens = jax.ShapeDtypeStruct((1, 2), 'int32')
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


def test_the_text_classifier_has_its_sample_beside_it():
  module = importlib.import_module('configs.text_classification')
  config = columns.settle(config_lib.parse(module.get_config()))
  assert config.data.classes == ('account', 'billing', 'bug', 'shipping')
  assert (config.data.field, config.data.label) == ('text', 'label')
  splits = csv.load(config.data)
  assert {x: len(splits[x]) for x in splits} == {
    'train': 280,
    'validation': 60,
    'test': 60,
  }
  assert splits['test'].names[0].startswith('T-')
  assert sum(x.stat().st_size for x in module.SAMPLE.parent.iterdir()) < 120_000


def test_the_sample_of_dialogues_is_one():
  folder = importlib.import_module('configs.text_classification').SAMPLE.parent
  raw = importlib.import_module('configs.daily_dialog').get_config()
  raw.data.update(path=str(folder / 'dialogues.jsonl'), validation_path='')
  raw.data.splits = (80, 10, 10)
  config = config_lib.parse(raw)
  splits = jsonl.load(config.data)
  dialogue.check(splits, config)
  assert sum(map(len, splits.values())) == 60
