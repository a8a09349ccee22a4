"""Weights of the classes in a classifier's loss: `task.class_weights`.

    objective = sum_i w(y_i) loss_i / sum_i w(y_i)

'balanced' are N / (C N_c), of C classes in N training examples, N_c of class c:
their mean over the examples is 1, and each class counts as much as another.
'sqrt_balanced' are the square roots of these, for classes so rare that their
few examples would outweigh the rest. Scores are unweighted.
"""

import math
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.config import values

KEY = 'task.class_weights'
NONE, BALANCED, SQRT_BALANCED = NAMES = 'none', 'balanced', 'sqrt_balanced'
MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6

Weights = str | tuple[float, ...]


def check(given: Weights, classes: tuple[str, ...]) -> None:
  """Checks the option, and the number of weights where classes are known.

  Raises:
    InputError: names the value and the remedy.
  """
  if isinstance(given, str):
    if given not in NAMES:
      names = ', '.join(map(repr, NAMES))
      errors.refuse(KEY, given, f'give {names} or a number for each class')
    return
  if classes and len(given) != len(classes):
    errors.refuse(
      KEY,
      given,
      f'give one number for each of {len(classes)} classes, in the order of '
      f'data.classes={classes!r:.200}',
    )
  if not all(MIN_WEIGHT <= weight <= MAX_WEIGHT for weight in given):
    errors.refuse(
      KEY, given, f'give numbers from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}'
    )
  if len(set(given)) < 2:
    errors.refuse(
      KEY, given, f'equal weights have no effect: give {NONE!r}, or others'
    )


def numbers(given: Weights) -> tuple[float, ...]:
  """Returns a weight for each class; (): the loss has none.

  What doesn't train has no need of those that `resolve` computes.
  """
  return () if isinstance(given, str) else given


def balanced(labels_N: np.ndarray, classes: int) -> tuple[float, ...]:
  """Returns the weight of each class; 1 of those that no example has.

  Args:
    labels_N: the class of each example; one below 0 doesn't count.
    classes: how many there are.
  """
  labels_N = np.asarray(labels_N)
  counts_C = np.bincount(labels_N[labels_N >= 0], minlength=classes)
  present = counts_C > 0
  even = counts_C.sum() / max(present.sum(), 1)
  weights_C = np.where(present, even / np.maximum(counts_C, 1), 1.0)
  return tuple(map(float, np.clip(weights_C, MIN_WEIGHT, MAX_WEIGHT)))


def is_open(config: Any) -> bool:
  """Whether the weights of a Config are still to be computed."""
  given = getattr(config.task, 'class_weights', NONE)
  return given in (BALANCED, SQRT_BALANCED)


def resolve(config: Any, labels_N: np.ndarray | None) -> Any:
  """Returns the config with numbers for 'balanced' and 'sqrt_balanced'.

  Args:
    config: of a run, whose classes are known.
    labels_N: of its training examples.
  """
  assert labels_N is not None  # see `check_documents` of the tasks
  weights = balanced(labels_N, len(config.data.classes))
  if config.task.class_weights == SQRT_BALANCED:
    weights = tuple(math.sqrt(weight) for weight in weights)
  return values.replaced(config, {KEY: weights})
