"""Whole epochs of the input pipeline, with nobody to compute on the batches."""

import tempfile
import time

from benchmarks import datasets
from benchmarks import measure
from rnn_jax import config as config_lib
from rnn_jax.data import pipeline


def epoch(repeats, name, data, limit=0):
  """Seconds an epoch on a data set, how much of it is padding, its shapes."""
  with tempfile.TemporaryDirectory() as folder:
    raw = config_lib.default()
    raw.data.splits = (100, 0, 0)
    raw.data.update(datasets.overrides(name, folder, limit))
    raw.data.update(data)
    raw.data.length = raw.data.tokens_per_batch
    raw.data.length = _longest(
      pipeline.Corpus.open(config_lib.parse(raw), folder)
    )
    config = config_lib.parse(raw)
    corpus = pipeline.Corpus.open(config, folder)
    batches = pipeline.training_batches(corpus, config)
    try:
      next(batches)  # Starts the workers.
      examples = len(corpus.examples(config.data, 'train'))
      epochs = [_epoch(batches, n * examples) for n in range(1, repeats + 1)]
    finally:
      batches.close()
  return _summary(epochs) | {
    'possible_shapes': len(pipeline.batch_shapes(corpus, config)),
    'examples': examples,
    'length': config.data.length,
  }


def _longest(corpus):
  """Tokens that the longest document predicts, with its boundary."""
  documents = corpus.documents['train']
  encode = corpus.tokenizer.encode_document
  return 1 + max(len(encode(documents.read(n))) for n in range(len(documents)))


def _epoch(batches, end):
  """Reads up to position `end`. Returns seconds and (tokens, shape) pairs."""
  begin, found = time.perf_counter(), []
  while not found or batches.get_state()['examples']['position'] < end:
    weights = next(batches).weights_BxL
    found.append((int(weights.sum()), weights.shape))
  return time.perf_counter() - begin, found


def _summary(epochs):
  """What all epochs together hold, and how long one takes."""
  found = [batch for _, some in epochs for batch in some]
  real = sum(tokens for tokens, _ in found)
  padded = sum(rows * length for _, (rows, length) in found)
  seconds = [seconds for seconds, _ in epochs]
  return measure.summarize(seconds) | {
    'padding_efficiency': real / padded,
    'shapes': sorted({shape for _, shape in found}),
    'batches': len(found) / len(epochs),
    'tokens': real / len(epochs),
    'tokens_per_second': real / sum(seconds),
  }
