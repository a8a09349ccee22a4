"""What evaluations of labelled series share: the predictions of a split."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from rnn_jax.data.series import labelled
from rnn_jax.inference import predict as predict_lib
from rnn_jax.system import activity
from rnn_jax.training import evaluate

CHUNK = 256  # series in memory at a time


def predictions(
  run: evaluate.Run, split: str, limit: int
) -> Iterator[tuple[str, np.ndarray, predict_lib.Prediction]]:
  """Yields the name, the targets and the prediction of each series.

  Args:
    run: the run.
    split: the name of the split.
    limit: of the first so many series; 0: of all.
  """
  documents = run.corpus.documents[split]
  given = run.config, run.corpus.tokenizer, run.params, run.temperature
  predictor = predict_lib.Predictor(*given)
  count = min(len(documents), limit or len(documents))
  with activity.doing('predicting', count, 'series') as done:
    for begin in range(0, count, CHUNK):
      numbers = range(begin, min(begin + CHUNK, count))
      read = [labelled.content(documents.read(n)) for n in numbers]
      series = [
        series_of(documents.name(n), each)
        for n, each in zip(numbers, read, strict=True)
      ]
      made = predictor.predict(series)
      for each, content, prediction in zip(series, read, made, strict=True):
        yield each.name, content.targets_T, prediction
      done(len(numbers))


def series_of(name: str, content: labelled.Content) -> labelled.Series:
  """Returns a document as the Predictor reads it."""
  none: Any = None
  return labelled.Series(name, content.values_LxC, none, none, name)
