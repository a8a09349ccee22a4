"""Classes predicted for a split, and their scores.

Accuracy and macro-F1 count every text. With task.answer 'word' a class counts
as predicted if the written text is exactly its name; else the text is no
valid output, and wrong. Scores are scikit-learn's.
"""

import numpy as np
from sklearn import metrics

from rnn_jax.data.examples import classification as examples_lib
from rnn_jax.evaluation import intervals
from rnn_jax.inference import classify
from rnn_jax.inference import generate
from rnn_jax.inference import sampling

INVALID = '(none)'


def predict(run, split, limit):
  """Returns a dict for each text of a split, in order; the first `limit`.

  Keys: name, text, label, predicted; 'probabilities' of the classes, or
  'written' where the model writes its answer.
  """
  documents = run.corpus.documents[split]
  maker = run.corpus.examples(run.config.data, split)
  count = min(len(documents), limit or len(documents))
  texts = [documents.read(n) for n in range(count)]
  questions = [maker.question(text) for text in texts]
  ids = [np.maximum(question, ~question) for question in questions]
  answer = _write if run.config.task.answer == 'word' else _choose
  classes, names = run.config.data.classes, documents.names
  return [
    {
      'name': names[n],
      'text': texts[n].decode(),
      'label': classes[documents.labels[n]],
      **found,
    }
    for n, found in enumerate(answer(run, ids))
  ]


def scores(predictions, classes):
  """Returns the scores of predictions, with 'intervals' of 95 %.

  Those of 'f1' are a dict by class, as the scores are.
  """
  labels = np.array([classes.index(row['label']) for row in predictions])
  # What is no class is one class more, which no text has.
  known = {name: n for n, name in enumerate(classes)}
  predicted = np.array(
    [known.get(row['predicted'], len(classes)) for row in predictions]
  )
  every = range(len(classes))
  each = metrics.f1_score(
    labels, predicted, labels=every, average=None, zero_division=0
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


def f1(true, found):
  """Returns F1 of a class, of booleans: whose it is, for whose it was taken."""
  return 2 * np.sum(true & found) / max(np.sum(true) + np.sum(found), 1)


def _intervals(classes, labels, predicted):
  # scikit-learn's scores take milliseconds, and a thousand draws have each.
  every = range(len(classes))

  def macro_f1(labels, predicted):
    return np.mean([f1(labels == n, predicted == n) for n in every])

  return {
    'accuracy': intervals.percentile(np.mean, labels == predicted),
    'macro_f1': intervals.percentile(macro_f1, labels, predicted),
    'valid': intervals.percentile(np.mean, predicted < len(classes)),
    'f1': {
      classes[n]: intervals.percentile(f1, labels == n, predicted == n)
      for n in every
    },
  }


def _choose(run, ids):
  classes = run.config.data.classes
  found_NxC = classify.probabilities(run.steps.task.model, run.params, ids)
  for row in found_NxC:
    yield {
      'predicted': classes[int(np.argmax(row))],
      'probabilities': [round(float(p), 6) for p in row],
    }


def _write(run, ids):
  classes = run.config.data.classes
  tokenizer = run.corpus.tokenizer
  words = examples_lib.words(tokenizer, classes)
  # A tokenizer that forgets white space writes its own form of a name.
  names = {tokenizer.decode(word): n for n, word in enumerate(words)}
  options = generate.Options(
    max_new_tokens=max(map(len, words)), sampling=sampling.Sampling(0.0)
  )
  generator = generate.Generator(run.steps.task.model, run.params, tokenizer)
  for completion in generator.generate(ids, options).completions:
    n = names.get(completion.text)
    ended = completion.reason == 'boundary'
    yield {
      'predicted': classes[n] if n is not None and ended else None,
      'written': completion.text,
    }
