"""Evaluates a run on the tasks of lm-evaluation-harness: a run as its model.

    model = lm_eval.Model(rnn_jax.load('runs/demo'))
    results = lm_eval.evaluate(model, Options(tasks=('lambada_openai',)))

The harness asks for log p(continuation | context), for log p(text), and for
generated texts. A context begins a document, as a prompt of `generate` does: it
is read after a boundary, and for a model of turns it is a whole turn, and the
continuation its reply. No final boundary is predicted, as the harness's other
models don't predict one, so that

    log p(text) = launch.score's logprob - log p(boundary | text)

Any length is read, in chunks; learned positions end, so they see as many of the
last tokens of a context as there is room for. Needs the package lm-eval.

Source: Gao et al., "The Language Model Evaluation Harness", 2024.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import logging
from lm_eval import evaluator
from lm_eval import tasks as tasks_lib
from lm_eval.api import instance
from lm_eval.api import model as api
from lm_eval.models import utils as model_utils

from rnn_jax import errors
from rnn_jax.inference import generate
from rnn_jax.inference import model as model_lib
from rnn_jax.inference import sampling

RESAMPLES = 1000  # for the standard error of a score that isn't a mean
NEW_TOKENS = 256  # of a text whose task doesn't say how many
SUPPORTED = {
  'until',
  'max_gen_toks',
  'do_sample',
  'temperature',
  'top_k',
  'top_p',
}


@dataclasses.dataclass(frozen=True)
class Options:
  """What to evaluate on.

  Attributes:
    tasks: names or patterns of tasks, groups and tags.
    include_path: folder with the YAML files of more tasks; '': none.
    shots: examples before each question; None: as many as the task says.
    limit: documents of each task; 0: all.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  tasks: tuple[str, ...]
  include_path: str = ''
  shots: int | None = None
  limit: int = 0

  def __post_init__(self):
    if not self.tasks:
      errors.refuse('tasks', '', 'name one or more, such as lambada_openai')
    if self.shots is not None and self.shots < 0:
      errors.refuse('shots', self.shots, 'give 0 or more')
    if self.limit < 0:
      errors.refuse('limit', self.limit, 'give 0 or more')


class Model(api.LM):
  """A run's model, as the harness calls it.

  Answers come in the order of the requests, which are read by length.
  """

  def __init__(
    self, model: model_lib.Model, batch_size: int = 8, seed: int = 0
  ) -> None:
    """Takes an open run.

    Args:
      model: it writes text.
      batch_size: how many requests are read together.
      seed: of tasks that sample.

    Raises:
      InputError: the model predicts classes, or `batch_size` is below 1.
    """
    super().__init__()
    if batch_size < 1:
      errors.refuse('batch_size', batch_size, 'give 1 or more')
    self._scorer, self._generator = model.scorer, model.generator
    self._tokenizer = model.bundle.tokenizer
    self._batch_size = batch_size
    self._seed = seed

  def loglikelihood(
    self, requests: list[instance.Instance]
  ) -> list[tuple[float, bool]]:
    """Returns log p(continuation | context), and whether it's the most likely.

    A continuation's tokens are those of both texts together that the context
    by itself doesn't begin with.

    Raises:
      InputError: learned positions have no room for a continuation.
    """
    rows, counts = [], []
    for request in requests:
      context, continuation = request.args
      ids = self._ids(context, continuation)
      count = len(ids) - self._common(ids, context)
      rows.append(self._last(ids, self._scorer.longest + 1))
      counts.append(count)
    return self._log_probabilities(rows, counts)

  def loglikelihood_rolling(
    self, requests: list[instance.Instance]
  ) -> list[float]:
    """Returns log p(text): the log-likelihood of a text after no context.

    With learned positions, of windows of that length one after the other.
    """
    rows, counts, owners = [], [], []
    for n, request in enumerate(requests):
      (text,) = request.args
      before = self._ids('')
      ids = self._ids('', text)
      for row, count in self._windows(ids, len(ids) - len(before)):
        rows.append(row)
        counts.append(count)
        owners.append(n)
    sums = [0.0] * len(requests)
    for n, (logprob, _) in zip(
      owners, self._log_probabilities(rows, counts), strict=True
    ):
      sums[n] += logprob
    return sums

  def generate_until(self, requests: list[instance.Instance]) -> list[str]:
    """Returns the continuation of each context, as `generate` gives it.

    Raises:
      InputError: a task asks for an option that isn't supported.
    """
    groups: dict[generate.Options, list[int]] = {}
    for n, request in enumerate(requests):
      groups.setdefault(self._options(request.args[1]), []).append(n)
    texts = [''] * len(requests)
    for options, group in groups.items():
      room = self._generator.prompts.longest + 1 - options.max_new_tokens
      prompts = {
        n: self._last(self._ids(requests[n].args[0]), max(room, 1))
        for n in group
      }
      order = sorted(group, key=lambda n: len(prompts[n]))
      written = self._generator.generate([prompts[n] for n in order], options)
      for n, completion in zip(order, written.completions, strict=True):
        texts[n] = completion.text
    return texts

  def _ids(self, context: str, continuation: str = '') -> np.ndarray:
    """Returns the framed ids of a context and what continues it."""
    encode = self._tokenizer.encode_document
    if self._generator.prompts.asks:
      parts = (
        self._generator.prompts.framing.question(context),
        encode(continuation),
      )
    else:
      parts = [self._tokenizer.boundary], encode(context + continuation)
    return np.concatenate(parts).astype(np.int32)

  def _common(self, ids: np.ndarray, context: str) -> int:
    """Returns how many ids at the start are those of the context."""
    own = self._ids(context)
    size = min(len(own), len(ids))
    differ = np.flatnonzero(own[:size] != ids[:size])
    return int(differ[0]) if len(differ) else size

  def _last(self, ids: np.ndarray, room: int) -> np.ndarray:
    """Returns the last ids that there is room for."""
    if not self._scorer.longest or len(ids) <= room:
      return ids
    logging.log_first_n(
      logging.WARNING,
      'a context of %d tokens is cut to its last %d: the model has learned '
      'positions for no more',
      1,
      len(ids),
      room,
    )
    return ids[-room:]

  def _windows(
    self, ids: np.ndarray, count: int
  ) -> Iterator[tuple[np.ndarray, int]]:
    """Yields rows and how many of their last ids are predicted."""
    longest = self._scorer.longest
    if not longest or len(ids) <= longest + 1:
      yield ids, count
      return
    # An id before each window is all that it needs of those before.
    for begin in range(len(ids) - count, len(ids), longest):
      window = ids[begin - 1 : begin + longest]
      yield window, len(window) - 1

  def _log_probabilities(self, rows, counts):
    """Returns (log p, is greedy) of the last `count` ids of each row."""
    results = [(0.0, True)] * len(rows)
    order = [n for n in np.argsort([*map(len, rows)]) if counts[n]]
    for begin in range(0, len(order), self._batch_size):
      chosen = order[begin : begin + self._batch_size]
      batch = [rows[n] for n in chosen]
      # Few numbers of rows, few programs.
      size = min(1 << (len(batch) - 1).bit_length(), self._batch_size)
      batch += (size - len(batch)) * [batch[0]]
      for n, values in zip(chosen, self._scorer.values_of(batch), strict=False):
        if counts[n] > len(values.logprob_L):
          raise errors.InputError(
            f'a continuation of {counts[n]:,} tokens: the model has learned '
            f'positions for {self._scorer.longest:,}: leave its task out'
          )
        logprob_L = values.logprob_L[-counts[n] :]
        greedy = bool(np.all(values.rank_L[-counts[n] :] == 1))
        results[n] = float(np.sum(logprob_L, dtype=np.float64)), greedy
    return results

  def _options(self, given: dict[str, Any]) -> generate.Options:
    known = model_utils.normalize_gen_kwargs(given, NEW_TOKENS)
    if unknown := {*known} - SUPPORTED:
      raise errors.InputError(
        f'generation_kwargs={given!r}: {sorted(unknown)} are not supported: '
        f'give only {sorted(SUPPORTED)}'
      )
    settings = sampling.Sampling(
      known.get('temperature', 0.0),
      max(known.get('top_k', 0), 0),
      known.get('top_p', 1.0),
    )
    return generate.Options(
      max_new_tokens=known['max_gen_toks'],
      sampling=settings,
      seed=self._seed,
      stop=tuple(filter(None, known['until'])),
      batch_size=self._batch_size,
    )


def evaluate(model: Model, options: Options) -> dict[str, Any]:
  """Returns the harness's results: 'results' by task, 'samples', 'config'.

  Data sets that aren't on this machine are downloaded.

  Raises:
    InputError: a task doesn't exist, or its data can't be read.
  """
  manager = tasks_lib.TaskManager(include_path=options.include_path or None)
  for name in options.tasks:
    if not manager.match_tasks([name]):
      errors.refuse(
        'tasks', name, '`lm-eval ls tasks` lists those that there are'
      )
  # The harness would fork, which a process with JAX's threads must not.
  os.environ['DISABLE_MULTIPROC'] = '1'
  try:
    results = evaluator.simple_evaluate(
      model=model,
      tasks=manager.match_tasks([*options.tasks]),
      num_fewshot=options.shots,
      limit=options.limit or None,
      bootstrap_iters=RESAMPLES,
      task_manager=manager,
    )
  except (ConnectionError, FileNotFoundError) as error:
    raise errors.InputError(
      f"tasks={','.join(options.tasks)!r}: the data can't be read, "
      f'{errors.first_line(error)}: check the network, or give tasks whose '
      'data are here'
    ) from error
  assert results is not None  # of the first process, and there is only one
  return results
