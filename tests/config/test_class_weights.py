"""Weights of classes: balanced ones, and what is refused."""

import math

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import class_weights
from tests.config import test_config
from tests.support import classifiers

REFUSED = (
  ('even', "give 'none', 'balanced', 'sqrt_balanced' or a number"),
  ('(1.0, nan, 2.0)', "give 'none', 'balanced', 'sqrt_balanced' or a number"),
  ((1.0, 2.0), 'give one number for each of 3 classes'),
  ((), 'give one number for each of 3 classes'),
  ((1.0, 2.0, 3.0, 4.0), "in the order of data.classes=.'bad', 'fair', 'good"),
  ((1.0, 0.0, 2.0), 'give numbers from 1e-06 to 1e.06'),
  ((1.0, -1.0, 2.0), 'give numbers from 1e-06 to 1e.06'),
  ((1.0, 1e7, 2.0), 'give numbers from 1e-06 to 1e.06'),
  ((1.0, math.nan, 2.0), 'give a finite number'),
  ((1.0, math.inf, 2.0), 'give a finite number'),
  ((1.0, '2', 3.0), "'2' is of type str: give float"),
  ((1.0, True, 3.0), 'True is of type bool: give float'),
  (2.0, 'of type float: give str'),
  ((2, 2, 2), "equal weights have no effect: give 'none'"),
)


@pytest.mark.parametrize(('given', 'message'), REFUSED)
def test_what_is_refused(given, message):
  with pytest.raises(errors.InputError, match=message) as caught:
    config_lib.parse(_changed(given))
  assert str(caught.value).startswith('task.class_weights')
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'given', ('none', 'balanced', 'sqrt_balanced', (1, 2.5, 1), [1, 2, 3])
)
def test_what_is_taken(given):
  config = config_lib.parse(_changed(given))
  again = config_lib.parse(config_lib.to_dict(config))
  assert again.task.class_weights == config.task.class_weights
  wanted = given if isinstance(given, str) else tuple(map(float, given))
  assert config.task.class_weights == wanted


def test_other_tasks_have_no_weights_of_classes():
  message = test_config.refusal(
    test_config.changed(task__class_weights='balanced')
  )
  assert message.startswith("task.class_weights='balanced': task.name=")
  assert (
    "choose one of ['classification', 'image_classification', "
    "'series_classification']"
  ) in message
  raw = classifiers.raw_texts(answer='word', class_weights='balanced')
  with pytest.raises(
    errors.InputError, match="without task.answer='pooled': leave"
  ):
    config_lib.parse(raw)


def test_balanced_weights_are_scikit_learn_s():
  from sklearn.utils import class_weight  # takes long to import

  labels = np.repeat([0, 1, 2], [70, 1, 9])
  wanted = class_weight.compute_class_weight(
    'balanced', classes=np.arange(3), y=labels
  )
  given = class_weights.balanced(labels, 3)
  np.testing.assert_allclose(given, wanted, rtol=1e-12)
  np.testing.assert_allclose(np.array(given)[labels].mean(), 1)
  # Without a class, and with rows of none.
  some = class_weights.balanced(np.append(labels, [-1, -1]), 4)
  np.testing.assert_allclose(some, [*wanted, 1.0])


def _changed(given):
  raw = classifiers.raw_texts().to_dict()
  raw['task']['class_weights'] = given
  return raw


def test_balanced_becomes_numbers():
  labels = np.array([0, 0, 0, 1])
  config = config_lib.parse(_changed('balanced'))
  resolved = class_weights.resolve(config, labels)
  assert resolved.task.class_weights == (4 / 6, 2.0, 1.0)
  assert class_weights.is_open(config) and not class_weights.is_open(resolved)
  assert class_weights.numbers(config.task.class_weights) == ()
  roots = config_lib.parse(_changed('sqrt_balanced'))
  assert class_weights.is_open(roots)
  roots = class_weights.resolve(roots, labels).task.class_weights
  np.testing.assert_allclose(np.square(roots), (4 / 6, 2.0, 1.0))
  given = config_lib.parse(_changed((1, 2, 3)))
  assert not class_weights.is_open(given)
  other = test_config.config_lib.parse(test_config.changed())
  assert not class_weights.is_open(other)
