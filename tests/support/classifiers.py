"""Runs of small classifiers with random parameters, made without training."""

import json
import random

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import tiny

CLASSES = ('bad', 'fair', 'good')
SIZE = 4  # pixels of an image


def texts(count=9):
  """Texts of 1 to 20 words, so that some are padded further than others."""
  rng = random.Random(0)
  lengths = [1, 20, *(rng.randint(1, 12) for _ in range(count - 2))]
  return [' '.join(rng.choices(tiny.WORDS, k=n)) for n in lengths]


def raw_texts(path='gone.jsonl', **task):
  """The config of a classifier of texts, unparsed."""
  raw = tiny.raw_config(path)
  raw.data.source = 'jsonl'
  raw.data.length = 128
  raw.data.classes = CLASSES
  raw.task.update(name='classification', **task)
  return raw


def write_texts(folder, path='gone.jsonl', **task):
  """Writes the run of a classifier of texts. Returns its folder."""
  raw = raw_texts(path, **task)
  bundle_lib.write(bundles.make(raw, tokenizer_lib.Bytes()), folder)
  return folder


def images_bundle():
  """A classifier of gray images."""
  raw = tiny.raw_config('gone')
  raw.task.name = 'image_classification'
  raw.data.source = 'images'
  raw.data.layout = 'images'
  raw.data.classes = CLASSES
  raw.data.image.update(size=SIZE, channels=1)
  raw.vision.patch = 2
  return bundles.make(raw, tokenizer_lib.Bytes())


def write_rows(path, given, **columns):
  """Writes rows with a text, a class and other columns. Returns the path."""
  rows = [
    {'text': text, 'label': CLASSES[n % 3], **columns}
    for n, text in enumerate(given)
  ]
  path.write_text('\n'.join(map(json.dumps, rows)))
  return path


def read_rows(text):
  """The rows of JSON lines."""
  return [json.loads(line) for line in text.splitlines()]
