"""Generates text: a trained model, its tokenizer, and the decode loop.

    generator = Generator.from_workdir('runs/demo')
    generation = generator.generate(['def main('])
    print(generation.completions[0].text)
    for part in generator.stream('def main('):
      print(part, end='')

A prompt begins a document unless `continues` is set. Without stop strings and
listeners one call to the device makes all tokens of a batch, at most LONGEST;
with them the same loop runs in slices, and the host checks the text in between.

Options that differ in numbers share programs, and of the programs only those
used last are kept: a generator that answers any number of varied calls has a
constant size.
"""

import collections
import dataclasses
import os
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import turns
from rnn_jax.inference import decode
from rnn_jax.inference import draft_model
from rnn_jax.inference import drafts
from rnn_jax.inference import layers
from rnn_jax.inference import prompt_lookup
from rnn_jax.inference import prompts as prompts_lib
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling as sampling_lib
from rnn_jax.inference import text as text_lib
from rnn_jax.models import language_model
from rnn_jax.models import packed_weights
from rnn_jax.ops import products
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import activity
from rnn_jax.system import bounds
from rnn_jax.system import host

WEIGHTS = products.FORMATS
SLICE = 16  # tokens between two checks by the host
LONGEST = 4096  # tokens per call to the device
PROGRAMS = 16  # that a generator keeps: those used last
TOKEN_BYTES = 48  # of a new token and its log probability, in lists

Listener = Callable[[int, str], None]  # of a prompt's index and new text


@dataclasses.dataclass(frozen=True)
class Options(text_lib.Options):
  """How to continue each prompt.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  continues: bool = False  # prompts are within a document, not at its start
  batch_size: int = 64  # prompts at a time
  # Tokens that a text may repeat, or that a small model drafts, checked at a
  # time (drafts.py); 0: none are.
  draft_tokens: int = 0

  def __post_init__(self):
    super().__post_init__()
    drafts.check_count(self.draft_tokens)
    if self.batch_size < 1:
      errors.refuse('batch_size', self.batch_size, 'give 1 or more')


@dataclasses.dataclass
class Timing:
  """Seconds and tokens; the other times don't include compilation."""

  compile_seconds: float = 0.0
  prefill_seconds: float = 0.0
  decode_seconds: float = 0.0
  prompt_tokens: int = 0
  new_tokens: int = 0
  draft_calls: int = 0  # of the model, where tokens were drafted

  @property
  def tokens_per_second(self) -> float:
    """New tokens of all rows per second of decoding."""
    return self.new_tokens / max(self.decode_seconds, 1e-9)


@dataclasses.dataclass(frozen=True)
class Generation:
  """All prompts' completions, in the prompts' order."""

  completions: tuple[text_lib.Completion, ...]
  timing: Timing


class _Batch(NamedTuple):
  """Rows that are written together."""

  rows: list[text_lib.Row]
  first: int  # the index of the first row among those of the seed
  options: Options
  listener: Listener | None  # None: nobody waits for parts of the texts
  prompts: list[np.ndarray]


class Generator:
  """A model that is ready to write.

  Attributes:
    model: the model, in the form for inference.
    tokenizer: its tokenizer.
    params: its parameters, layer by layer.
    prompts: how its prompts become ids.
    compilations: how many programs were compiled so far.
  """

  def __init__(
    self,
    model: language_model.LanguageModel,
    params: dict,
    tokenizer: tokenizer_lib.Tokenizer,
    asks: bool = False,
    weights: str = 'float32',
    batch_invariant: bool = False,
  ):
    """Takes a model and its parameters; `weights` is their format.

    Parameters that are packed already stay as they are. Small float32 matrices
    are packed if texts are to be `batch_invariant`, the same to the bit in any
    batch; their steps take longer.

    Raises:
      InputError: `weights` is not in WEIGHTS.
    """
    check_weights(weights)
    self.tokenizer = tokenizer
    self.model = layers.for_inference(model)
    self.prompts = prompts_lib.Prompts(
      tokenizer, turns.of(tokenizer), asks, self.model.longest
    )
    device = jax.local_devices()[0]
    if batch_invariant or not packed_weights.is_packed(params):
      params = jax.device_put(params, device)
      params = packed_weights.pack_to_serve(params, weights, batch_invariant)
    self.params = layers.place(params, device)
    self._programs: collections.OrderedDict[Any, Any]
    self._programs = collections.OrderedDict()
    self._draft: Generator | None = None
    self.compilations = 0

  @classmethod
  def from_workdir(
    cls,
    workdir: str | os.PathLike,
    checkpoint: str | int = 'best',
    weights: str = 'float32',
    batch_invariant: bool = False,
    states: str = 'float32',
  ) -> 'Generator':
    """Restores a run: its 'best' or 'latest' checkpoint, or that of a step.

    If none was evaluated, the best is the latest. Matrices are held in one of
    WEIGHTS, see ops/products/formats.py; `batch_invariant` is __init__'s, and
    `states` the format of from_bundle.

    Raises:
      InputError: `workdir` has no run or no such checkpoint, `weights` is not
        in WEIGHTS, or the model doesn't have such states.
    """
    check_weights(weights)
    check_states(config_lib.parse(workdir_lib.load_config(workdir)), states)
    bundle = bundle_lib.read(workdir, checkpoint, weights=weights)
    return cls.from_bundle(bundle, weights, batch_invariant, states)

  @classmethod
  def from_bundle(
    cls,
    bundle: bundle_lib.Bundle,
    weights: str = 'float32',
    batch_invariant: bool = False,
    states: str = 'float32',
  ) -> 'Generator':
    """Returns the generator of a model.

    The matrices of its recurrences are kept in the format `states` between
    steps, see layers.with_states.

    Raises:
      InputError: it doesn't write text, `weights` is not in WEIGHTS, or it
        doesn't have such states.
    """
    config = bundle.config
    check_writes(config)
    model = language_model.from_config(config, bundle.tokenizer.size)
    model = layers.with_states(model, states)
    asks = config.task.answers
    formats = weights, batch_invariant
    made = cls(model, bundle.params, bundle.tokenizer, asks, *formats)
    if config.task.classifies:  # a text and its class aren't turns
      framing = turns.Framing(bundle.tokenizer)
      made.prompts = dataclasses.replace(made.prompts, framing=framing)
    return made

  def draft_by(self, draft: 'Generator', workdir: str | os.PathLike) -> None:
    """Takes a small model that drafts texts with `draft_tokens`.

    Args:
      draft: the model.
      workdir: where it is from, for messages.

    Raises:
      InputError: it has other tokens, or learned positions.
    """
    draft_model.check(self.prompts, draft.prompts, workdir)
    self._draft = draft

  def generate(
    self,
    prompts: Sequence[str | np.ndarray],
    options: Options = Options(),  # noqa: B008, frozen
    listener: Listener | None = None,
  ) -> Generation:
    """Continues prompts. A row's random numbers follow from its index.

    Args:
      prompts: texts ('' is the start of a document), or arrays of ids, which
        are read as they are.
      options: how to continue them.
      listener: called with a prompt's index and the next part of its text as
        soon as it is final. The parts add up to the completion's text.

    Raises:
      InputError: there are no prompts, the vocabulary doesn't cover one, an
        empty one continues a document, or the texts don't fit in memory.
    """
    if not prompts:
      raise errors.InputError('prompts=[]: give one or more')
    bounds.check(
      len(prompts) * options.max_new_tokens * TOKEN_BYTES,
      f'max_new_tokens={options.max_new_tokens:,} for {len(prompts):,} texts '
      '(samples or prompts)',
      'give fewer',
    )
    ids = [self._encode(prompt, options) for prompt in prompts]
    timing, rows = Timing(), []
    with activity.doing('generating', len(prompts), 'texts') as done:
      for first in range(0, len(prompts), options.batch_size):
        own = ids[first : first + options.batch_size]
        batch = self._batch(own, first, options, listener)
        read = self._prefill(own, options, timing)
        for _ in self._slices(batch, *read, timing):
          _show(batch)
        rows += batch.rows
        done(len(own))
    timing.new_tokens = sum(len(row.tokens) for row in rows)
    completions = [
      row.completion(prompt=self._text(prompt))
      for row, prompt in zip(rows, prompts, strict=True)
    ]
    return Generation((*completions,), timing)

  def stream(
    self,
    prompt: str | np.ndarray,
    options: Options = Options(),  # noqa: B008, frozen
  ) -> Iterator[str]:
    """Yields the parts of a prompt's text as they are generated.

    They add up to the text of `generate([prompt], options)`. A part is ready
    every SLICE tokens; closing the iterator ends the generation.

    Raises:
      InputError: as `generate`, before the first part.
    """
    return self._parts(self._encode(prompt, options), options)

  def _parts(self, ids, options):
    parts: list[str] = []

    def keep(_, text):
      parts.append(text)

    batch = self._batch([ids], 0, options, keep)
    timing = Timing()
    read = self._prefill([ids], options, timing)
    for _ in self._slices(batch, *read, timing):
      _show(batch)
      yield from parts
      parts.clear()

  def begin(self, options: Options) -> Any:
    """Returns the state of one row that has read nothing yet."""
    return [decode.fresh(x.model)[0] for x in self._readers(options)]

  def extend(
    self,
    state: Any,
    ids: np.ndarray,
    index: int,
    options: Options,
    listener: Listener | None = None,
  ) -> tuple[Any, text_lib.Completion]:
    """Reads more ids into the state of one row and continues them.

    Args:
      state: from `begin` with such options, or of the call before.
      ids: what is read.
      index: of the text among those of the seed.
      options: how to continue it.
      listener: as of `generate`; it is called with `index`.

    Returns:
      (state, completion): the state has read the new tokens too.
    """
    timing, readers = Timing(), self._readers(options)
    filled = np.zeros(decode.buffer_size(len(ids)), np.int32)
    filled[: len(ids)] = ids
    inputs = jax.device_put((filled, np.int32(len(ids))))
    read = []
    for reader, own in zip(readers, state, strict=True):
      program = reader._program(decode.read, (), (own, *inputs), timing)
      read.append(program(reader._weights, own, *inputs))
    (own, logits_1xV), *others = read
    carry = decode.Carry(own, logits_1xV, jax.device_put(np.zeros(1, 'i4')))
    carry = self._remember(carry, [ids], options)
    batch = self._batch([ids], index, options, listener)
    last, ahead = carry, [own for own, _ in others]
    for last, memory in self._slices(batch, carry, ahead, timing):  # noqa: B007
      _show(batch)
      ahead = [memory] * len(ahead)
    return [last.state, *ahead], batch.rows[0].completion()

  def _readers(self, options):
    """Returns what reads a text: this one, and what drafts with it."""
    if not options.draft_tokens:
      return (self,)
    self._check_drafts(options)
    return (self,) if self._draft is None else (self, self._draft)

  def _encode(self, prompt, options):
    ids = self.prompts.encode(prompt, options.continues)
    self.prompts.check(ids, options)
    return ids

  def _batch(self, ids, first, options, listener):
    rows = [text_lib.Row(self.tokenizer, options) for _ in ids]
    return _Batch(rows, first, options, listener, ids)

  def _text(self, prompt):
    return prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)

  @property
  def _weights(self):
    return decode.Weights(self.params)

  def _prefill(self, ids, options, timing):
    """Reads a batch of prompts.

    Returns:
      (the loop's first carry, a list of the state of a model that drafts).
    """
    timing.prompt_tokens += sum(map(len, ids))
    inputs, readers = jax.device_put(decode.pad(ids)), self._readers(options)
    programs = [x._program(decode.prefill, (), inputs, timing) for x in readers]
    begin = time.perf_counter()
    carry, *others = jax.block_until_ready(
      [
        program(reader._weights, *inputs)
        for program, reader in zip(programs, readers, strict=True)
      ]
    )
    timing.prefill_seconds += time.perf_counter() - begin
    carry = self._remember(carry, ids, options)
    return carry, [other.state for other in others]

  def _remember(self, carry, ids, options):
    """Adds what penalties and biases need of prompts."""
    if not options.sampling.remembers:
      return carry
    memory = sampler.remember(ids, options.sampling, self.tokenizer.size)
    return carry._replace(memory=jax.device_put(memory))

  def _slices(self, batch, carry, ahead, timing):
    """Runs rows to their ends, in large calls or slice by slice.

    Yields (carry, what drafts) after each call, whose tokens they have read.
    """
    rows, options = batch.rows, batch.options
    whole = batch.listener is None and not options.stop
    most = min(LONGEST if whole else SLICE, options.max_new_tokens)
    adjusts = options.min_new_tokens > 0
    kind = options.sampling.kind(self.tokenizer.size, adjusts)
    drafter, memory, own = self._drafter(batch, ahead)
    fixed = decode.Options(kind, decode.buffer_size(most))
    table = sampling_lib.make_table(len(rows))
    for n in range(len(rows)):
      line = options.line(batch.first + n, self.tokenizer.boundary)
      sampling_lib.put(table, n, line)
    while not all(row.reason for row in rows):
      table.active_B[:] = [not row.reason for row in rows]
      packed, count = jax.device_put((sampling_lib.pack(table), np.int32(most)))
      function, static = decode.decode, (fixed,)
      arguments = carry, packed, count
      if drafter is not None:
        function, static = drafts.decode, (fixed, drafter)
        limits = drafts.Limits(count, count)
        arguments = carry, memory, packed, limits, *own
      program = self._program(function, static, arguments, timing)
      begin = time.perf_counter()
      carry, *others, produced = program(self._weights, *arguments)
      if others:
        memory, runs = others
        timing.draft_calls += int(jax.device_get(runs.all))
      made = jax.device_get(produced[:3])  # nobody asks for alternatives
      timing.decode_seconds += time.perf_counter() - begin
      _read(rows, *made)
      yield carry, memory

  def _drafter(self, batch, ahead):
    """Returns (what drafts, its memory, a list of its weights), or Nones.

    Args:
      batch: the rows.
      ahead: a list of the state of a model that drafts.
    """
    count = batch.options.draft_tokens
    if not count:
      return None, None, []
    if ahead:
      (state,) = ahead
      small = draft_model.SmallModel(self._draft.model, count)
      return small, state, [self._draft._weights]
    more = batch.options.max_new_tokens + count + 1
    past = jax.device_put(prompt_lookup.history(batch.prompts, more))
    return prompt_lookup.Lookup(count), past, []

  def _check_drafts(self, options):
    """Checks that tokens may be drafted.

    Raises:
      InputError: they may not.
    """
    why = drafts.lacking(self.model, self.params)
    if options.sampling.remembers or options.min_new_tokens:
      why = 'penalties, biases and min_new_tokens depend on each token'
    if why:
      errors.refuse('draft_tokens', options.draft_tokens, f'{why}: give 0')

  def _program(self, function, fixed, arguments, timing):
    """Returns the compiled `function` for arguments of these shapes."""
    shapes = tuple(leaf.shape for leaf in jax.tree.leaves(arguments))
    key = function, fixed, shapes
    if key not in self._programs:
      begin = time.perf_counter()
      with activity.doing('compiling the generator'):
        given = self.model, *fixed, self._weights, *arguments
        self._programs[key] = function.lower(*given).compile()
        function.clear_cache()  # else jax keeps each trace
        host.release_freed_memory()
      self.compilations += 1
      timing.compile_seconds += time.perf_counter() - begin
      if len(self._programs) > PROGRAMS:
        self._programs.popitem(last=False)
    self._programs.move_to_end(key)
    return self._programs[key]


def check_weights(weights: str) -> None:
  """Checks the name of a format of weights.

  Raises:
    InputError: it isn't in WEIGHTS.
  """
  if weights not in WEIGHTS:
    errors.refuse('weights', weights, f'choose one of {WEIGHTS}')


def check_states(config: config_lib.Config, states: str) -> None:
  """Checks that a config's model writes text with such states.

  Raises:
    InputError: it doesn't, or `states` isn't in precision.STATES.
  """
  layers.check_states(states)
  check_writes(config)
  # A state's format doesn't depend on the vocabulary.
  layers.with_states(language_model.from_config(config, 1), states)


def check_writes(config: config_lib.Config) -> None:
  """Checks that a config's model writes text.

  Raises:
    InputError: it doesn't; the message says what to call instead.
  """
  if not config.task.writes_text:
    if config.task.classifies or config.task.labels_tokens:
      kind = 'a class' if config.task.classifies else 'labels'
      does = f'predicts {kind}, not text: call predict, or use launch.predict'
    else:
      other = 'forecast' if config.task.reads_series else 'evaluate'
      other = 'predict' if config.task.series_label else other
      does = f'writes no text: use launch.{other}'
    errors.refuse('task.name', config.task.name, f'its model {does}')


def _read(rows, made_B, tokens_BxN, logprobs_BxN):
  """Gives the rows that haven't ended their new tokens."""
  for n, row in enumerate(rows):
    if not row.reason:
      made = made_B[n]
      tokens = tokens_BxN[n, :made].tolist()
      row.advance(tokens)
      row.write(tokens, logprobs_BxN[n, :made].tolist())


def _show(batch):
  """Calls the listener with the new text of each row."""
  if batch.listener is None:
    return
  for index, row in enumerate(batch.rows, batch.first):
    if text := row.new_text():
      batch.listener(index, text)
