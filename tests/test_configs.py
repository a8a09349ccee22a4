"""The models of configs/ have the sizes that their documents give."""

import importlib
import math
import pathlib

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.models import language_model
from rnn_jax.training import schedule


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


NAMES = sorted(
  path.stem for path in pathlib.Path(__file__).parents[1].glob('configs/*.py')
)


@pytest.mark.parametrize('name', NAMES)
def test_each_config_can_be_tried_for_a_few_steps(name):
  raw = importlib.import_module(f'configs.{name}').get_config()
  raw.train.steps = 5
  config = config_lib.parse(raw)
  rates = [schedule.make(config).rate(step) for step in range(5)]
  assert max(rates) == pytest.approx(raw.optimizer.learning_rate)
