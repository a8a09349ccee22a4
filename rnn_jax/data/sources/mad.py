"""Mechanistic architecture design: six tasks, each of which asks for one skill.

  recall        pairs of a key and a value: the value of a key that came before
  fuzzy_recall  the same of keys and values of several symbols
  noisy_recall  the same between pairs that mean nothing
  copying       symbols among blanks, then the symbols in their order
  compression   random symbols: all of them, from the last step only (task
                'reconstruction')
  memorization  keys whose values are the same in all texts

As published, the training texts of the three recalls ask for every next symbol,
and held-out texts for those alone that can be known; `data.mad.held_out` texts
are the validation split.
Source: Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures",
2024.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

FIRST = 0x4E00  # of the symbols
TASKS = (
  'recall',
  'fuzzy_recall',
  'noisy_recall',
  'copying',
  'compression',
  'memorization',
)


class Text(NamedTuple):
  """What a model reads, and what it predicts at the steps that are asked."""

  inputs_L: np.ndarray
  labels_L: np.ndarray
  asked_L: np.ndarray


@dataclasses.dataclass(frozen=True)
class Options(synthetic.Generated):
  """The content of a document, and the number of documents."""

  task: str = config_lib.option('recall', choices=TASKS)
  length: int = config_lib.option(128, minimum=4)  # symbols of a text
  # Symbols, those without a meaning included.
  vocabulary: int = config_lib.option(16, minimum=4, maximum=16384)
  # Share of pairs that mean nothing.
  noise: float = config_lib.option(0.2, below=1)
  noise_vocabulary: int = config_lib.option(16, minimum=1)  # symbols of theirs
  copied: int = config_lib.option(16, minimum=1)  # symbols to copy
  # Symbols of a fuzzy key or value, at most.
  motif: int = config_lib.option(3, minimum=1)
  examples: int = config_lib.option(12_800, minimum=1)  # of training
  held_out: int = config_lib.option(1280, minimum=1)  # of validation


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the source, of section `data` of the config."""

  mad: Options = Options()

  def check(self, config: config_lib.Config) -> None:
    """Checks that a text has room, and that there are enough symbols.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    options, task = self.mad, self.mad.task
    shortest = {
      'fuzzy_recall': 6 * options.motif,
      'copying': 2 * options.copied + 1,
    }.get(task, 4)
    if options.length < shortest:
      errors.refuse(
        'data.mad.length',
        options.length,
        f'data.mad.task={task!r} needs {shortest} symbols: give that or more',
      )
    fewest = {
      'fuzzy_recall': 2 * options.motif + 1,
      'noisy_recall': options.noise_vocabulary + 2,
    }.get(task, 4)
    if options.vocabulary < fewest:
      errors.refuse(
        'data.mad.vocabulary',
        options.vocabulary,
        f'data.mad.task={task!r} needs {fewest} symbols: give that or more',
      )
    if (task == 'compression') != (config.task.name == 'reconstruction'):
      errors.refuse(
        'task.name',
        config.task.name,
        f"data.mad.task={task!r} is one of task.name='tagging', and only "
        "'compression' one of 'reconstruction': give that one",
      )


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of the training and the validation split."""
  options = data.mad
  counts = {'train': options.examples, 'validation': options.held_out}
  splits = {
    name: documents.whole(
      documents.InMemory(
        _spell(make((options.seed, part, n), options, part > 0))
        for n in range(count)
      )
    )
    for part, (name, count) in enumerate(counts.items())
  }
  return documents.complete(splits, data)


def make(seed: tuple[int, ...], options: Options, held_out: bool) -> Text:
  """Returns one text; `held_out` as in the module's docstring."""
  rng = np.random.default_rng(seed)
  return MAKERS[options.task](rng, options, held_out)


def _spell(text):
  """Returns the document of a text."""
  inputs = ''.join(chr(FIRST + n) for n in text.inputs_L)
  labels = ''.join(
    chr(FIRST + n) if asked else synthetic.FILLER
    for n, asked in zip(text.labels_L, text.asked_L, strict=True)
  )
  return inputs + synthetic.MARK + labels


def _next(symbols, known, held_out):
  """Returns a text whose labels are the next symbols.

  Args:
    symbols: of the text, with one more at the end.
    known: which of them can be known from those before them.
    held_out: whether only these are asked for.
  """
  asked = np.array(known[1:]) | (not held_out)
  return Text(np.array(symbols[:-1]), np.array(symbols[1:]), asked)


def _recall(rng, options, held_out, noise=0.0, noises=0):
  """Pairs of which `noise` mean nothing, of the last `noises` symbols."""
  pairs, symbols = options.length // 2, options.vocabulary - noises
  half = symbols // 2
  is_noise = rng.random(pairs) < noise
  is_noise[[rng.integers(pairs - 1), -1]] = False
  keys = rng.integers(half, size=pairs)
  before = np.flatnonzero(~is_noise[:-1])
  keys[-1] = keys[rng.choice(before)]
  values = rng.integers(half, symbols, size=half)[keys]
  both = np.stack([keys, values], 1)
  both[is_noise] = rng.integers(
    symbols, options.vocabulary, size=(is_noise.sum(), 2)
  )
  known = np.zeros((pairs, 2), bool)
  seen = set()
  for n in np.flatnonzero(~is_noise):
    known[n, 1] = keys[n] in seen
    seen.add(keys[n])
  return _next(both.ravel(), known.ravel(), held_out)


def _noisy_recall(rng, options, held_out):
  noises = options.noise_vocabulary
  return _recall(rng, options, held_out, options.noise, noises)


def _fuzzy_recall(rng, options, held_out):
  """Keys of held-out texts are all of the longest kind.

  The last pair is one of the text; before the first are blanks, the last symbol
  of the vocabulary.
  """
  blank, most = options.vocabulary - 1, options.motif
  half = blank // 2

  def draw(first, stop, size):
    return tuple(first + rng.permutation(stop - first)[:size])

  def draw_key():
    return draw(0, half, most if held_out else rng.integers(1, most + 1))

  def draw_value():
    return draw(half, blank, rng.integers(1, most + 1))

  last = draw_key()
  values = {last: draw_value()}
  room = options.length - len(last) - len(values[last]) - 2 * most
  place = rng.integers(room - 2 * most + 1)  # where `last` comes, or before it
  symbols, known, seen = [], [], set()
  while len(symbols) < room:
    at_place = len(symbols) >= place and last not in seen
    key = last if at_place else draw_key()
    value = values.setdefault(key, draw_value())
    symbols += key + value
    known += [False] * len(key) + [key in seen] * len(value)
    seen.add(key)
  symbols += last + values[last]
  known += [False] * len(last) + [True] * len(values[last])
  blanks = options.length + 1 - len(symbols)
  return _next([blank] * blanks + symbols, [False] * blanks + known, held_out)


def _copying(rng, options, held_out):
  """The last two symbols of the vocabulary are a blank and the mark to copy."""
  del held_out
  blank, mark, count = (
    options.vocabulary - 2,
    options.vocabulary - 1,
    options.copied,
  )
  copied = rng.integers(blank, size=count)
  blanks = options.length - 2 * count - 1
  before = rng.multinomial(blanks, [1 / count] * count)  # each symbol
  inputs = np.full(options.length, blank)
  inputs[np.cumsum(before) + np.arange(count)] = copied
  inputs[-count - 1] = mark
  labels = np.append(np.zeros(options.length - count, int), copied)
  return Text(inputs, labels, np.arange(options.length) > blanks + count)


def _compression(rng, options, held_out):
  """The last symbol of the vocabulary ends the text."""
  del held_out
  last = options.vocabulary - 1
  symbols = np.append(rng.integers(last, size=options.length - 1), last)
  return Text(symbols, symbols, np.ones(options.length, bool))


def _memorization(rng, options, held_out):
  """After each key is the last symbol, whose label is the value.

  Keys and values are the two halves of the other symbols.
  """
  del held_out
  last, pairs = options.vocabulary - 1, options.length // 2
  half = last // 2
  values = np.random.default_rng(options.seed).permutation(last - half)
  keys = rng.integers(half, size=pairs)
  asked = np.tile([False, True], pairs)
  return Text(
    np.stack([keys, np.full(pairs, last)], 1).ravel(),
    np.repeat(half + values[keys], 2),
    asked,
  )


MAKERS = dict(
  zip(
    TASKS,
    (
      _recall,
      _fuzzy_recall,
      _noisy_recall,
      _copying,
      _compression,
      _memorization,
    ),
    strict=True,
  )
)
