"""The kinds of kept runs: the config of each, and what a user asks of it."""

import random
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import pandas as pd

from rnn_jax import config as config_lib
from rnn_jax.inference import model as model_lib
from tests.kept_runs import data

STEPS = 40  # a kept run has one left
TOKENS = 12
PROMPT = 'the state '
MESSAGES = [{'role': 'user', 'content': 'where is it key'}]
TEXTS = ['the gate reads a gate', 'a key', 'the state forgets the gate']
TAGGED = ['0110100', '1', '00000000', '101']

SIMPLE = {'cell.heads': 2, 'cell.key_width': 4, 'cell.value_width': 4}
COMMON = {
  'data.batch_size': 8,
  'data.splits': (60, 20, 20),
  'data.workers': 0,
  'model.layers': 1,
  'model.width': 8,
  'optimizer.learning_rate': 0.02,
  'schedule.warmup_steps': 4,
  'train.steps': STEPS,
  'train.checkpoint_every': STEPS,
  'train.log_every': STEPS,
  'train.keep_checkpoints': 1,
  'evaluate.every': STEPS,
  'evaluate.batch_size': 8,
  'metrics.writers': (),
  'sample.new_tokens': 0,
}
ROW = {'data.length': 48, 'data.boundaries': (48,)}
TEXT = ROW | SIMPLE | {'data.path': 'data/texts.csv', 'data.field': 'text'}

Post = Callable[[str, Mapping[str, Any]], Any]  # of a server


class Kind(NamedTuple):
  """A kind of run.

  Attributes:
    ask: asks its model. Returns what JSON has.
    parts: arguments of config.default.
    changes: of that config, {key: value}.
    base: the run whose model its adapters change, or that it has packed.
    weights: the format that it is packed in; '': it was trained.
    served: asks a server the same; None: none serves this kind.
  """

  ask: Callable[[model_lib.Model], Any]
  parts: dict[str, str] = {}
  changes: dict[str, Any] = {}
  base: str = ''
  weights: str = ''
  served: Callable[[Post], Any] | None = None


def config(kind: Kind) -> config_lib.Config:
  """Returns the config of a kind's run."""
  raw = config_lib.default(**kind.parts)
  config_lib.override(raw, COMMON | kind.changes)
  return config_lib.parse(raw)


def _text(model):
  (made,) = model.generate(PROMPT, max_new_tokens=TOKENS, temperature=0.0)
  return made.text


def _served_text(post):
  body = {'prompt': PROMPT, 'max_tokens': TOKENS, 'temperature': 0.0}
  return post('/v1/completions', body)['choices'][0]['text']


def _reply(model):
  made = model.chat(MESSAGES, max_new_tokens=TOKENS, temperature=0.0)
  return made.text


def _served_reply(post):
  body = {'messages': MESSAGES, 'max_tokens': TOKENS, 'temperature': 0.0}
  answer = post('/v1/chat/completions', body)
  return answer['choices'][0]['message']['content']


def _classes(model, inputs):
  return [[x.label, x.probabilities] for x in model.predict(inputs)]


def _of_texts(model):
  return _classes(model, TEXTS)


def _served_classes(post):
  rows = post('/v1/classify', {'input': TEXTS})['data']
  return [[row['label'], row['probabilities']] for row in rows]


def _of_images(model):
  rng = random.Random(1)
  return _classes(model, [data.image(n, rng) for n in range(3)])


def _of_series(model):
  frame = pd.read_csv('data/labelled.csv').drop(columns='label')
  return _classes(model, frame[frame.unique_id < 's04'])


def _labels(model):
  return [x.labels for x in model.predict(TAGGED)]


def _forecasts(model):
  made = model.forecast(pd.read_csv('data/series.csv'))
  return made.filter(regex='^q').to_numpy().tolist()


def _served_forecasts(post):
  frame = pd.read_csv('data/series.csv')
  series = [
    {
      'id': name,
      'times': [*own.ds],
      'readings': [None if np.isnan(y) else y for y in own.y],
    }
    for name, own in frame.groupby('unique_id')
  ]
  rows = post('/v1/forecast', {'series': series})['data']
  return [
    [*levels]
    for row in rows
    for levels in zip(*row['quantiles'].values(), strict=True)
  ]


WRITER = Kind(
  _text,
  {'source': 'csv'},
  TEXT | {'data.tokenizer': 'bytes'},
  served=_served_text,
)
KINDS = {
  'language_model': WRITER,
  'adapter': WRITER._replace(
    base='language_model', changes=WRITER.changes | {'adapters.rank': 2}
  ),
  'packed': WRITER._replace(base='language_model', weights='int8'),
  'classifier': Kind(
    _of_texts,
    {'cell': 'gru', 'task': 'classification', 'source': 'csv'},
    ROW
    | {
      'data.path': 'data/texts.csv',
      'data.tokenizer': 'bpe',
      'data.vocabulary': 300,
    },
    served=_served_classes,
  ),
  'tagger': Kind(
    _labels,
    {'cell': 'lstm', 'task': 'tagging', 'source': 'csv'},
    ROW
    | {
      'data.path': 'data/tagged.csv',
      'data.field': 'text',
      'data.tokenizer': 'characters',
    },
  ),
  'dialogue': Kind(
    _reply,
    {'task': 'dialogue', 'source': 'jsonl'},
    ROW
    | SIMPLE
    | {
      'data.path': 'data/dialogues.jsonl',
      'data.field': 'turns',
      'data.tokenizer': 'characters',
      'model.mlp_width': 8,
      'task.reply_tokens': TOKENS,
    },
    served=_served_reply,
  ),
  'images': Kind(
    _of_images,
    {
      'cell': 'bdh',
      'task': 'image_classification',
      'source': 'images',
      'layout': 'images',
    },
    {
      'data.path': 'data/images.zip',
      'data.image.size': data.SIZE,
      'data.image.channels': 1,
      'vision.patch': 2,
      'model.block': 'normed',
      'model.norm': 'standard',
      'cell.heads': 2,
      'cell.neurons': 8,
      'cell.sees': 'row',
    },
  ),
  'forecaster': Kind(
    _forecasts,
    {'task': 'forecasting', 'source': 'series'},
    SIMPLE
    | {
      'data.path': 'data/series.csv',
      'data.season': 6,
      'data.horizon': 4,
      'data.window': 8,
      'data.length': 48,
      'data.buckets': 1,
      'task.quantiles': (0.1, 0.5, 0.9),
    },
    served=_served_forecasts,
  ),
  'series_classifier': Kind(
    _of_series,
    {
      'cell': 'min_lstm',
      'task': 'series_classification',
      'source': 'labelled_series',
    },
    {'data.path': 'data/labelled.csv', 'data.length': 16, 'data.buckets': 1},
  ),
}
