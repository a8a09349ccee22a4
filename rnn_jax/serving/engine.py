"""Serves many requests at once with one model, each as if it had it to itself.

    engine = Engine(bundle, Options(slots=16))
    with engine.running():
      ids = engine.model().prompts.encode('def main(')
      handle = engine.submit(ids, requests.Options(max_new_tokens=50))
      print(handle.result().completions[0].text)

A request waits in a queue (work.py), its prompt is read chunk by chunk
(reading.py), its state enters a slot (slots.py), and all slots make tokens
together until a row ends and leaves its slot to the next one; scheduler.py says
what is next.

A request's tokens and log-probabilities are the same bits whatever else is
served: programs have fixed shapes, rows never mix (slots.py), a text decides
where its chunks begin, and a state is only reused if the same programs made it
of the same tokens. Decoding makes a state in another program than reading does,
so a reply is read again, in idle moments, before the next turn continues it.

One thread makes the steps; all but `step` may be called from any thread.
"""

import contextlib
import dataclasses
import threading
import time
import types
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures

import numpy as np

from rnn_jax import errors
from rnn_jax.inference import drafts
from rnn_jax.inference import generate as generate_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import prefixes as prefixes_lib
from rnn_jax.serving import reading
from rnn_jax.serving import requests
from rnn_jax.serving import scheduler as scheduler_lib
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import slots as slots_lib
from rnn_jax.serving import work

NAP = 0.5  # seconds after which an idle engine looks again
POLL = 0.005  # seconds between two looks at a running engine

Model = bundle_lib.Bundle | generate_lib.Generator
Adapters = served_lib.Adapters


@dataclasses.dataclass(frozen=True)
class Options:
  """How an engine serves.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  slots: int = 16  # rows that make tokens together
  steps: int = 8  # tokens of a row between two visits to the host, at most
  chunks: tuple[int, ...] = reading.SIZES  # lengths in which prompts are read
  # Between two calls, for the free slots' share; ten times as long if all are.
  read_seconds: float = 0.05
  queue: int = 256  # requests that may wait
  prefix_bytes: int = 256 * 2**20  # of stored states; 0: none is stored
  weights: str = 'float32'  # one of WEIGHTS of inference/generate.py
  states: str = 'float32'  # one of precision.STATES, of matrix states
  # Tokens that texts may repeat, checked at a time where few rows write
  # (inference/prompt_lookup.py); 0: none are.
  draft_tokens: int = 0

  def __post_init__(self):
    for name in ('slots', 'steps', 'queue'):
      if getattr(self, name) < 1:
        errors.refuse(name, getattr(self, name), 'give 1 or more')
    for name in ('prefix_bytes', 'read_seconds'):
      if not getattr(self, name) >= 0:
        errors.refuse(name, getattr(self, name), 'give 0 or more')
    drafts.check_count(self.draft_tokens)
    reading.check_sizes(self.chunks)


@dataclasses.dataclass(frozen=True)
class Stats:
  """What an engine does now, and did since its start."""

  slots: int
  queued: int  # requests that wait to be read, or for a slot
  requests: int  # that were submitted
  ended: dict[str, int]  # completions by reason; 'error': requests that failed
  active: int = 0  # slots in use
  prompt_tokens: int = 0
  cached_tokens: int = 0  # of the prompts, whose states were stored
  read_tokens: int = 0  # of prompts, and of replies that were read again
  new_tokens: int = 0
  calls: int = 0  # that made tokens
  steps: int = 0  # that the calls were allowed
  draft_runs: int = 0  # of the model, where rows could draft
  draft_tokens: int = 0  # that a row made there
  prefixes: prefixes_lib.Counts = dataclasses.field(
    default_factory=prefixes_lib.Counts
  )
  first_token_seconds: tuple[float, ...] = ()  # of the last requests
  compiled: int = 0  # programs


class Engine:
  """See the module's docstring.

  Attributes:
    options: as given.
  """

  def __init__(
    self,
    model: Model,
    options: Options = Options(),  # noqa: B008, frozen
    adapters: Adapters = types.MappingProxyType({}),
  ) -> None:
    """Takes a model; `warm_up` or the first step compiles its programs.

    A Generator's weights and states are as they are, whatever the options.

    Args:
      model: what is served.
      options: how.
      adapters: of the model, by the names that requests have for them.

    Raises:
      InputError: the model or an adapter doesn't write text, or its tokens
        can't be drafted.
    """
    self.options = options
    self._first = self._serve(model, adapters)
    self._intake = work.Intake(options.queue)
    self._scheduler: scheduler_lib.Scheduler | None = None
    self._thread: threading.Thread | None = None

  def _serve(self, model, adapters):
    options = self.options
    formats = options.weights, options.states
    own = served_lib.Served(model, formats, options.chunks, adapters)
    why = options.draft_tokens and drafts.lacking(
      own.network, own.weights.params
    )
    if why:
      errors.refuse('draft_tokens', options.draft_tokens, f'{why}: give 0')
    return own

  @property
  def _served(self):
    return self._scheduler.served if self._scheduler else self._first

  def model(self, adapter: str = '') -> served_lib.Served:
    """Returns what serves now: an adapter, or the model itself.

    Raises:
      InputError: there is no such adapter.
    """
    return self._served.of(adapter)

  def warm_up(self) -> int:
    """Compiles all programs and checks that rows agree.

    Returns:
      How many programs there are; none is compiled later.

    Raises:
      InputError: the numbers of a row depend on its slot on this device.
    """
    made = self._built()
    return made.slots.compiled + made.reader.compiled

  def _built(self):
    """Returns what makes the steps."""
    if self._scheduler is None:
      options, served = self.options, self._first
      model, weights = served.network, served.weights
      store = prefixes_lib.Store(options.prefix_bytes)
      reader = reading.Reader(model, weights, options.chunks, store)
      reader.check(weights)
      boundary = served.tokenizer.boundary
      slots = slots_lib.Slots(
        model,
        weights,
        options.slots,
        options.steps,
        boundary,
        options.draft_tokens,
      )
      slots.check(weights, reader.samples(weights), weights.models - 1)
      self._scheduler = scheduler_lib.Scheduler(
        served, slots, reader, store, options.read_seconds, self._intake
      )
    return self._scheduler

  # What any thread may call.

  def submit(
    self,
    ids: np.ndarray,
    options: requests.Options = requests.Options(),  # noqa: B008, frozen
    listener: requests.Listener | None = None,
  ) -> requests.Handle:
    """Queues a request. Returns its handle.

    Args:
      ids: what is read, as `model().prompts.encode` returns it of a text.
      options: how to continue it.
      listener: see requests.Handle.

    Raises:
      InputError: the model can't serve it.
      QueueFullError: too many requests wait.
      ClosedError: the engine was closed.
    """
    job = self.job(ids, options)
    job.handle.listener = listener
    self.submit_all([job])
    return job.handle

  def job(self, ids: np.ndarray, options: requests.Options) -> work.Job:
    """Returns a request that the model can serve; nothing checks it again.

    Args:
      ids: what is read, after the state.
      options: how it is continued.

    Raises:
      InputError: the model can't serve it.
    """
    served, state = self.model(options.adapter), options.state
    before = None
    if state is not None:
      served.check_state(state)
      before = state.count
    served.prompts.check(ids, options, before)
    matcher = None
    if options.constraint is not None:
      matcher = served.grammars.matcher(options.constraint)
    return work.Job(ids.astype(np.int32), options, matcher, served.adapter)

  def submit_all(self, jobs: Sequence[work.Job]) -> None:
    """Queues the jobs of requests, all or none.

    Args:
      jobs: from `job`.

    Raises:
      InputError: there are more than the queue holds.
      QueueFullError: too many requests wait.
      ClosedError: the engine was closed.
    """
    if len(jobs) > self.options.queue:
      errors.refuse(
        'prompts',
        len(jobs),
        f'give at most {self.options.queue}: that many '
        'may wait for this server (--queue)',
      )
    self._intake.submit(jobs)

  def reload(
    self,
    model: Model,
    adapters: Adapters = types.MappingProxyType({}),
  ) -> futures.Future:
    """Replaces the parameters of the model and its adapters between two steps.

    Requests that have begun end on the old ones, later ones wait. Stored states
    are forgotten, and states of the old parameters are refused. No program is
    compiled.

    Returns:
      A future that is done when the new parameters serve.

    Raises:
      InputError: another config, tokenizer or shape.
    """
    new = self._serve(model, adapters)
    self._served.check_reload(new)
    return self._intake.reload(new)

  def stats(self) -> Stats:
    """Returns the statistics."""
    intake, made = self._intake, self._scheduler
    stats = Stats(
      self.options.slots, intake.waiting, intake.submitted, intake.ended
    )
    if made is None:
      return stats
    return dataclasses.replace(
      stats,
      queued=stats.queued + made.waiting,
      active=made.slots.used,
      prompt_tokens=made.totals['prompt_tokens'],
      cached_tokens=made.totals['cached_tokens'],
      new_tokens=made.totals['new_tokens'],
      read_tokens=made.reader.tokens,
      calls=made.slots.calls,
      steps=made.slots.steps,
      draft_runs=made.slots.drafted['runs'],
      draft_tokens=made.slots.drafted['tokens'],
      prefixes=made.store.counts,
      first_token_seconds=tuple(made.first_token),
      compiled=made.slots.compiled + made.reader.compiled,
    )

  def generate(
    self,
    prompts: Sequence[str | np.ndarray],
    options: requests.Options = requests.Options(),  # noqa: B008, frozen
  ) -> list[requests.Reply]:
    """Continues prompts. Returns a reply for each.

    Random numbers follow from a prompt's place, as in Generator.generate.
    Without a running thread this one makes the steps.

    Args:
      prompts: texts or ids.
      options: how to continue them.

    Raises:
      InputError: the model can't serve one.
    """
    encode, state = self.model(options.adapter).prompts.encode, options.state
    ended = None if state is None else state.ended
    handles: list[requests.Handle] = []
    for n, prompt in enumerate(prompts):
      ids = encode(prompt, ended=ended)
      index = options.index + n * options.n
      own = dataclasses.replace(options, index=index)
      while len(handles) == n:
        try:
          handles.append(self.submit(ids, own))
        except requests.QueueFullError:
          self._make_progress()
    while not all(handle.done for handle in handles):
      self._make_progress()
    return [handle.result() for handle in handles]

  # What runs the engine.

  @contextlib.contextmanager
  def running(self, drain_seconds: float = 30.0) -> Iterator['Engine']:
    """Runs the engine in a thread of its own; closes it at the end."""
    self.start()
    try:
      yield self
    finally:
      self.close(drain_seconds)

  def start(self) -> None:
    """Runs the engine in a thread of its own, until `close`."""
    self.warm_up()
    self._thread = threading.Thread(
      target=self._run, name='engine', daemon=True
    )
    self._thread.start()

  def _run(self):
    scheduler = self._built()
    try:
      while not self._intake.closed or self._intake.live:
        if not scheduler.step():
          self._intake.wait(NAP)
    finally:
      scheduler.fail_all(requests.ClosedError('the engine has ended'))

  def close(self, drain_seconds: float = 30.0) -> None:
    """Takes no more requests, and returns when those it has are done.

    After `drain_seconds` those that still run end as they are, with the reason
    'closed'.
    """
    self._intake.close()
    until = time.monotonic() + drain_seconds
    while self._intake.live and time.monotonic() < until:
      self._make_progress()
    if self._intake.live:
      self._built().abandoned = True
    while self._intake.live:
      self._make_progress()
    if self._thread is not None:
      self._thread.join()
    self._intake.cancel_reloads()

  def _make_progress(self):
    if self._thread is not None and self._thread.is_alive():
      time.sleep(POLL)
    else:
      self.step()

  def step(self) -> bool:
    """Does what is next: some reading and one call that makes tokens.

    What fails, fails the requests that the engine has, and not the engine.

    Returns:
      Whether there was anything to do.
    """
    return self._built().step()
