"""A grid from the command line: some values of some keys of a config.

    --config=configs/stdlib_bytes.py \\
        --vary=optimizer.learning_rate=1e-4,5e-4,2e-3 --vary=model.layers=1,2

makes six variants, each named by what it changes, such as
'learning_rate=0.0005,layers=2'. Values are separated by commas and have the
type of their key: a tuple is in parentheses, a text with a comma in quotes, as
in --vary=data.splits=(90,5,5),(80,10,10).
"""

import collections
import dataclasses
import itertools
import math
import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan

MAX_VARIANTS = 1000  # variants
LONGEST = 150  # characters of a variant's name, which names a folder
FLAG = '--vary'
# They change what a token is, and so the loss per token.
TOKENS = {
  'data.tokenizer',
  'data.vocabulary',
  'data.pre_tokenizer',
  'data.lowercase',
}
LOSS = ('loss', 'lower', 'loss')
ACCURACY = ('accuracy', 'higher', 'accuracy')
BITS = ('bits_per_byte', 'lower', 'bits per byte')
OPENING, CLOSING, QUOTES = '([', ')]', '\'"'


def make(
  config: str,
  variations: Sequence[str],
  settings: Sequence[str] = (),
  common: Mapping[str, Any] | None = None,
) -> grid_lib.Grid:
  """Returns the grid of all combinations.

  Args:
    config: path of a config file.
    variations: 'section.key=value,value', each key once.
    settings: 'section.key=value' of every run.
    common: {'section.key': value} of every run.

  Raises:
    InputError: an unknown key, a value of a wrong type, or one given twice.
  """
  _, raw = plan.load(config)
  texts = dict(_split(text) for text in variations)
  if len(texts) < len(variations):
    keys = ','.join(text.partition('=')[0] for text in variations)
    errors.refuse(FLAG, keys, 'give each key once')
  if math.prod(map(len, texts.values())) > MAX_VARIANTS:
    errors.refuse(FLAG, variations, f'give at most {MAX_VARIANTS} combinations')
  seeds = _seeds(texts.pop(plan.SEED, []))
  common = dict(common or {})
  seed = common.pop(plan.SEED, raw.train.seed)
  stem = pathlib.Path(config).stem
  others = {**common, **dict(map(plan.pair, settings))}  # may name parts
  variants = [
    plan.parse_settings(raw, others, [*zip(texts, values, strict=True)])
    for values in itertools.product(*texts.values())
  ]
  grid = grid_lib.Grid(
    title=f'{stem}: {", ".join(map(_last, texts)) or "seeds"}',
    config=config,
    variants=_named(variants) if texts else {stem: {}},
    metrics=(LOSS,),
    seeds=seeds or (seed,),
  )
  run = plan.make(grid, settings, common)(next(iter(grid.variants)), 0)
  metrics = _metrics(config_lib.parse(run.config), texts)
  return dataclasses.replace(grid, metrics=metrics)


def values_of(text: str) -> list[str]:
  """Returns the parts between commas outside of brackets and quotes."""
  parts, depth, quote = [''], 0, ''
  for letter in text:
    if quote:
      quote = '' if letter == quote else quote
    elif letter in QUOTES:
      quote = letter
    else:
      depth += (letter in OPENING) - (letter in CLOSING)
    if letter == ',' and not depth and not quote:
      parts.append('')
    else:
      parts[-1] += letter
  return [_unquoted(part.strip()) for part in parts]


def _unquoted(text):
  quoted = len(text) > 1 and text[0] in QUOTES and text[0] == text[-1]
  return text[1:-1] if quoted else text


def _split(variation):
  """Returns (key, its values as text)."""
  key, equals, text = variation.partition('=')
  if not equals or not text:
    raise errors.InputError(f'{FLAG}={variation}: give section.key=value,value')
  values = values_of(text)
  if len(set(values)) < len(values):
    raise errors.InputError(f'{FLAG}={variation}: give each value once')
  return key, values


def _seeds(values):
  if not all(value.isdecimal() for value in values):
    raise errors.InputError(
      f'{FLAG}={plan.SEED}={",".join(values)}: give whole numbers from 0 up'
    )
  return tuple(map(int, values))


def _metrics(config, texts):
  metrics = [LOSS, ACCURACY]
  if config.evaluate.criterion == 'errors':
    metrics.reverse()
  if config.task.predicts_all and TOKENS & texts.keys():
    metrics.insert(0, BITS)
  return tuple(metrics)


def _named(variants):
  """Returns {name: overrides}; short names of keys where these are clear."""
  keys = [*variants[0]]
  counts = collections.Counter(map(_last, keys))
  short = {key: _last(key) if counts[_last(key)] == 1 else key for key in keys}
  named = {}
  for values in variants:
    name = ','.join(f'{short[key]}={_text(x)}' for key, x in values.items())
    # Two long texts may begin alike, and different ones be written alike.
    name = name[:LONGEST]
    named[f'{name},{len(named)}' if name in named else name] = values
  return named


def _last(key):
  return key.rpartition('.')[2]


def _text(value):
  """A value as part of a folder's name."""
  if isinstance(value, (tuple, list)):
    return '-'.join(map(_text, value))
  return re.sub(r'[^\w.+-]+', '_', str(value), flags=re.ASCII).strip('_')
