"""Predicts classes of texts or images of a split, and scores them.

Accuracy and macro-F1 count every example. With task.answer 'word' a class
counts as predicted if the written text is exactly its name; any other text is
an invalid output, and wrong. Scores are scikit-learn's.
"""

import functools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from sklearn import metrics

from rnn_jax.data.images import images
from rnn_jax.data.text.examples import classification as examples_lib
from rnn_jax.evaluation import intervals
from rnn_jax.inference import classify
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.training import evaluate

INVALID = '(none)'
BATCH = 256  # images at a time


def predict(run: evaluate.Run, split: str, limit: int) -> list[dict[str, Any]]:
  """Returns a dict for each of the first `limit` documents of a split (0: all).

  Keys: name, text (unless it is an image), label, predicted; 'probabilities'
  of the classes, or 'written' if the model writes its answer.
  """
  documents = run.corpus.documents[split]
  count = min(len(documents), limit or len(documents))
  classes, names = run.config.data.classes, documents.names
  if run.config.data.layout == 'images':
    texts = [{}] * count
    answers = _classify_images(run, documents, count)
  else:
    texts = [documents.read(n) for n in range(count)]
    maker = run.corpus.examples(run.config.data, split)
    questions = [maker.question(text) for text in texts]
    ids = [np.maximum(question, ~question) for question in questions]
    writes = run.config.task.answer == 'word'
    answers = _write(run, ids) if writes else _classify(run, ids)
    texts = [{'text': text.decode()} for text in texts]
  return [
    {'name': names[n], **text, 'label': classes[documents.labels[n]], **answer}
    for n, (text, answer) in enumerate(zip(texts, answers, strict=True))
  ]


def score_run(
  run: evaluate.Run, predictions: Sequence[dict[str, Any]], scorer: None
) -> dict[str, Any]:
  """Returns the `scores` of a run's predictions; there is no `scorer`."""
  del scorer
  return scores(predictions, run.config.data.classes)


def scores(
  predictions: Sequence[dict[str, Any]], classes: Sequence[str]
) -> dict[str, Any]:
  """Returns the scores of predictions, with 'intervals' of 95 %.

  Those of 'f1' are a dict by class, as the scores are.
  """
  labels = np.array([classes.index(row['label']) for row in predictions])
  # An invalid output is one more class, which no text has.
  known = {name: n for n, name in enumerate(classes)}
  predicted = np.array(
    [known.get(row['predicted'], len(classes)) for row in predictions]
  )
  numbers = range(len(classes))
  each = metrics.f1_score(
    labels, predicted, labels=numbers, average=None, zero_division=0
  )
  table = metrics.confusion_matrix(
    labels, predicted, labels=range(len(classes) + 1)
  )
  return {
    'accuracy': float(metrics.accuracy_score(labels, predicted)),
    'macro_f1': float(np.mean(each)),
    'valid': float(np.mean(predicted < len(classes))),
    'f1': dict(zip(classes, map(float, each), strict=True)),
    'classes': [*classes, INVALID],
    'confusion_matrix': table[:-1].tolist(),  # rows: the label
    'intervals': _intervals(classes, labels, predicted),
  }


def f1(true: np.ndarray, predicted: np.ndarray) -> float:
  """Returns F1 of a class; each argument has a boolean per example."""
  hits = np.sum(true & predicted)
  return 2 * hits / max(np.sum(true) + np.sum(predicted), 1)


def _intervals(classes, labels, predicted):
  # scikit-learn's scores take milliseconds each, and there are 1,000 draws.
  numbers = range(len(classes))

  def macro_f1(labels, predicted):
    return np.mean([f1(labels == n, predicted == n) for n in numbers])

  return {
    'accuracy': intervals.percentile(np.mean, labels == predicted),
    'macro_f1': intervals.percentile(macro_f1, labels, predicted),
    'valid': intervals.percentile(np.mean, predicted < len(classes)),
    'f1': {
      classes[n]: intervals.percentile(f1, labels == n, predicted == n)
      for n in numbers
    },
  }


def _classify(run, ids):
  probabilities_NxC = classify.probabilities(
    run.programs.task.model, run.params, ids
  )
  yield from _likeliest(run, probabilities_NxC)


def _likeliest(run, probabilities_NxC) -> Iterator[dict[str, Any]]:
  for row in probabilities_NxC:
    yield {
      'predicted': run.config.data.classes[int(np.argmax(row))],
      'probabilities': [round(float(p), 6) for p in row],
    }


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(model, params, image_BxHxWxC):
  return jax.nn.softmax(model.apply({'params': params}, image_BxHxWxC))


def _classify_images(run, documents, count):
  shape = images.shape(run.config.data.image)
  params = jax.device_put(run.params, jax.local_devices()[0])
  for begin in range(0, count, BATCH):
    batch = range(begin, min(begin + BATCH, count))
    image_BxHxWxC = np.zeros((BATCH, *shape), np.uint8)
    for row, n in enumerate(batch):
      pixels = np.frombuffer(documents.read(n), np.uint8)
      image_BxHxWxC[row] = pixels.reshape(shape)
    image_BxHxWxC = jax.device_put(image_BxHxWxC, jax.local_devices()[0])
    rows = _probabilities(run.programs.task.model, params, image_BxHxWxC)
    yield from _likeliest(run, jax.device_get(rows)[: len(batch)])


def _write(run, ids):
  classes = run.config.data.classes
  tokenizer = run.corpus.tokenizer
  words = examples_lib.words(tokenizer, classes)
  # A lossy tokenizer writes its own form of a name.
  names = {tokenizer.decode(word): n for n, word in enumerate(words)}
  options = generate.Options(
    max_new_tokens=max(map(len, words)), sampling=sampling.Sampling(0.0)
  )
  generator = generate.Generator(run.programs.task.model, run.params, tokenizer)
  for completion in generator.generate(ids, options).completions:
    n = names.get(completion.text)
    ended = completion.reason == 'boundary'
    yield {
      'predicted': classes[n] if n is not None and ended else None,
      'written': completion.text,
    }
