"""Associative recall: questions ask for given pairs, at that distance."""

import collections
import re

import numpy as np

from rnn_jax.data.sources import recall
from rnn_jax.data.text import synthetic

OPTIONS = synthetic.Options(pairs=5, distance=12, symbols=7)


def test_each_key_is_given_once_and_asked_once():
  for n in range(50):
    text = recall.make(np.random.default_rng(n), OPTIONS)
    given, gap, asked = re.fullmatch(r'(\w+)(\.*)(.+)', text).groups()
    pairs = re.findall(r'([a-g])([A-G])', given)
    assert len(given) == 10 and len(dict(pairs)) == 5 and len(gap) == 12
    questions = re.findall(r'\?(.)=(.)', asked)
    assert len(asked) == 20 and sorted(questions) == sorted(pairs)


def test_order_keys_and_values_vary():
  texts = [recall.make(np.random.default_rng(n), OPTIONS) for n in range(50)]
  for place in (0, 1, -1, -3):
    assert len({text[place] for text in texts}) > 4


def test_without_a_look_at_keys_three_answers_in_five_are_right():
  # The most frequent of the values that are left. docs/analysis.md has it.
  options = synthetic.Options(pairs=4, distance=4, symbols=8)
  right = 0
  for n in range(2000):
    text = recall.make(np.random.default_rng(n), options)
    left = collections.Counter(text[1:8:2])
    for answer in re.findall(r'=(.)', text):
      right += left.most_common(1)[0][0] == answer
      left[answer] -= 1
  assert 0.59 < right / (4 * 2000) < 0.62
