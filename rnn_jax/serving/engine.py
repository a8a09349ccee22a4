"""Serves many requests at once with one model, each as if it had it to itself.

    engine = Engine(bundle, Options(slots=16))
    with engine.running():
      handle = engine.submit(Request('def main(', max_new_tokens=50))
      print(handle.result().completions[0].text)

A request waits in a queue, its prompt is read chunk by chunk (reading.py), its
state enters a slot, and all slots make tokens together until a row ends and
leaves its slot to the next one. Between two calls that make tokens one chunk is
read, and more while slots are free, for `read_seconds`: a prompt of any length
delays the others' next token by no more.

A request's tokens and log-probabilities are the same bits whatever else is
served: programs have fixed shapes, rows never mix (programs.py), a text decides
where its chunks begin, and a state is only reused if the same programs made it
of the same tokens. Decoding makes a state in another program than reading does,
so a reply is read again, in idle moments, before the next turn continues it.

One thread runs `run` or calls `step`; all else may be called from any thread.
"""

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures

import jax
import numpy as np
from absl import logging

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import generate as generate_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import prefixes
from rnn_jax.serving import programs as programs_lib
from rnn_jax.serving import reader as reader_lib
from rnn_jax.serving import reading
from rnn_jax.serving import requests
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import slots as slots_lib
from rnn_jax.serving import states
from rnn_jax.serving import work

READY = 4  # requests that are read ahead of a free slot
LATER = 64  # replies that wait to be read; older ones are forgotten
NAP = 0.5  # seconds after which an idle engine looks again
POLL = 0.005  # seconds between two looks at a running engine
RECENT = 1024  # requests that the latencies are of
IN_TIME = ('boundary', 'length', 'stop')  # reasons of texts that are whole

Model = bundle_lib.Bundle | generate_lib.Generator


@dataclasses.dataclass(frozen=True)
class Options:
  """How an engine serves.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  slots: int = 16  # rows that make tokens together
  steps: int = 8  # tokens of a row between two visits to the host, at most
  chunks: tuple[int, ...] = reading.SIZES  # lengths in which prompts are read
  read_seconds: float = 0.05  # between two calls, while slots are free
  queue: int = 256  # requests that may wait
  prefix_bytes: int = 256 * 2**20  # of stored states; 0: none is stored
  weights: str = 'float32'  # or 'int8', as in inference/generate.py

  def __post_init__(self):
    for name in ('slots', 'steps', 'queue'):
      if getattr(self, name) < 1:
        errors.refuse(name, getattr(self, name), 'give 1 or more')
    for name in ('prefix_bytes', 'read_seconds'):
      if not getattr(self, name) >= 0:
        errors.refuse(name, getattr(self, name), 'give 0 or more')
    reading.check_sizes(self.chunks)


@dataclasses.dataclass(frozen=True)
class Stats:
  """What an engine does now, and did since its start."""

  slots: int
  active: int  # slots in use
  queued: int  # requests that wait to be read, or for a slot
  requests: int  # that were submitted
  ended: dict[str, int]  # completions by reason; 'error': requests that failed
  prompt_tokens: int
  cached_tokens: int  # of the prompts, whose states were stored
  read_tokens: int  # of prompts, and of replies that were read again
  new_tokens: int
  calls: int  # that made tokens
  steps: int  # that the calls were allowed
  prefixes: prefixes.Counts
  first_token_seconds: tuple[float, ...]  # of the last RECENT requests
  compiled: int  # programs


class Engine:
  """See the module's docstring.

  Attributes:
    options: as given.
  """

  def __init__(
    self,
    model: Model,
    options: Options = Options(),  # noqa: B008, frozen
  ) -> None:
    """Takes a model; `warm_up` or the first step compiles its programs.

    A Generator's weights are as they are, whatever `options.weights`.

    Raises:
      InputError: the model doesn't write text.
    """
    self.options = options
    self._served = self._serve(model)
    self._store = prefixes.Store(options.prefix_bytes)
    self._programs: programs_lib.Programs | None = None
    self._work = threading.Condition()  # guards what follows
    self._queue: collections.deque[work.Job] = collections.deque()
    self._live: set[work.Job] = set()  # jobs that haven't ended
    self._reloads: collections.deque[tuple[served_lib.Served, futures.Future]]
    self._reloads = collections.deque()
    self._closed = False
    self._runs = False
    self._thread: threading.Thread | None = None
    self._totals: collections.Counter[str] = collections.Counter()
    self._ended: collections.Counter[str] = collections.Counter()
    self._first_token: collections.deque[float]
    self._first_token = collections.deque(maxlen=RECENT)
    # What follows belongs to the thread that makes the steps.
    self._abandoned = False
    self._current: reader_lib.Reading | None = None
    self._ready: collections.deque[work.Job] = collections.deque()
    self._wanted: collections.deque[reader_lib.Reading] = collections.deque()
    self._later: collections.deque[reader_lib.Reading]
    self._later = collections.deque(maxlen=LATER)

  def _serve(self, model):
    options = self.options
    return served_lib.Served(model, options.weights, options.chunks)

  @property
  def generator(self) -> generate_lib.Generator:
    """The model, with the parameters that serve now."""
    return self._served.generator

  @property
  def tokenizer(self) -> tokenizer_lib.Tokenizer:
    """The model's."""
    return self._served.tokenizer

  @property
  def pieces(self) -> work.Pieces:
    """The bytes of its tokens."""
    return self._served.pieces

  @property
  def model_digest(self) -> str:
    """A digest of all that the model's numbers follow from, in hexadecimal."""
    return self._served.digest

  def warm_up(self) -> int:
    """Compiles all programs and checks that rows agree.

    Returns:
      How many programs there are; none is compiled later.

    Raises:
      InputError: the numbers of a row depend on its slot on this device.
    """
    if self._programs is None:
      options, generator = self.options, self.generator
      programs = programs_lib.Programs(
        generator.model,
        generator.params,
        options.slots,
        options.steps,
        options.chunks,
      )
      self._slots = slots_lib.Slots(programs, options.steps)
      self._slots.check(generator.params)
      self._reader = reader_lib.Reader(programs, self._store)
      self._programs = programs
    return self._programs.compiled

  # What any thread may call.

  def submit(
    self,
    request: requests.Request,
    listener: requests.Listener | None = None,
  ) -> requests.Handle:
    """Queues a request. Returns its handle.

    Args:
      request: what to continue, and how.
      listener: see requests.Handle.

    Raises:
      InputError: the model can't serve it.
      QueueFullError: too many requests wait.
      ClosedError: the engine was closed.
    """
    served, matcher = self._served, None
    ids = served.encode(request)
    if request.constraint is not None:
      matcher = served.grammars.matcher(request.constraint)
    handle = requests.Handle(len(ids), listener)
    job = work.Job(request, ids, handle, matcher)
    with self._work:
      if self._closed:
        raise requests.ClosedError('the engine is closed')
      if len(self._queue) >= self.options.queue:
        raise requests.QueueFullError(
          f'{len(self._queue)} requests wait, as many as may: try again later'
        )
      self._queue.append(job)
      self._live.add(job)
      self._totals['requests'] += 1
      self._work.notify_all()
    return handle

  def encode(self, request: requests.Request) -> np.ndarray:
    """Returns the ids that are read for a request, after its state.

    Raises:
      InputError: the model can't serve it.
    """
    return self._served.encode(request)

  def encode_turns(self, turns: Sequence[str]) -> np.ndarray:
    """Returns the ids of a conversation whose next turn is the model's.

    Raises:
      InputError: the model wasn't trained on turns, a turn is empty, or the
        vocabulary doesn't cover one.
    """
    return self._served.encode_turns(turns)

  def export_state(self, state: states.State, key: bytes) -> bytes:
    """Returns a reply's state as signed bytes, see states.py.

    Raises:
      InputError: the key is empty.
    """
    return states.dump(state, key)

  def import_state(self, data: bytes, key: bytes) -> states.State:
    """Returns the state of bytes from `export_state` of the same model.

    Raises:
      InputError: they are damaged, signed with another key, or of another
        model.
    """
    state = states.load(data, key)
    self._served.check_state(state)
    return state

  def reload(self, model: Model) -> futures.Future:
    """Replaces the model's parameters between two steps.

    Requests that have begun end on the old ones, later ones wait. Stored states
    are forgotten, and states of the old parameters are refused. No program is
    compiled.

    Returns:
      A future that is done when the new parameters serve.

    Raises:
      InputError: another config, tokenizer or shape.
    """
    new = self._serve(model)
    self._served.check_reload(new)
    done: futures.Future = futures.Future()
    with self._work:
      self._reloads.append((new, done))
      self._work.notify_all()
    return done

  def stats(self) -> Stats:
    """Returns the statistics."""
    built = self._programs is not None
    with self._work:
      used = self._slots.used if built else 0
      waiting = len(self._queue) + len(self._ready)
      return Stats(
        slots=self.options.slots,
        active=used,
        queued=waiting + (self._current is not None),
        requests=self._totals['requests'],
        ended=dict(self._ended),
        prompt_tokens=self._totals['prompt_tokens'],
        cached_tokens=self._totals['cached_tokens'],
        read_tokens=self._reader.tokens if built else 0,
        new_tokens=self._totals['new_tokens'],
        calls=self._slots.calls if built else 0,
        steps=self._slots.steps if built else 0,
        prefixes=self._store.counts,
        first_token_seconds=tuple(self._first_token),
        compiled=self._programs.compiled if self._programs else 0,
      )

  def generate(
    self,
    prompts: Sequence[str | np.ndarray],
    request: requests.Request = requests.Request(),  # noqa: B008, frozen
  ) -> list[requests.Reply]:
    """Continues prompts. Returns a reply for each.

    Random numbers follow from a prompt's place, as in Generator.generate.
    Without a running thread this one makes the steps.

    Args:
      prompts: texts or ids.
      request: how to continue them; its own prompt is unused.

    Raises:
      InputError: the model can't serve one.
    """
    handles: list[requests.Handle] = []
    for n, prompt in enumerate(prompts):
      index = request.index + n * request.n
      asked = dataclasses.replace(request, prompt=prompt, index=index)
      while len(handles) == n:
        try:
          handles.append(self.submit(asked))
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
    self._runs = True
    self._thread = threading.Thread(target=self.run, name='engine', daemon=True)
    self._thread.start()

  def run(self) -> None:
    """Makes steps until `close`, in this thread."""
    self.warm_up()
    self._runs = True
    try:
      while not self._closed or self._live:
        if not self.step():
          with self._work:
            if not (self._queue or self._reloads or self._closed):
              self._work.wait(NAP)
    finally:
      self._runs = False
      self._fail_all(requests.ClosedError('the engine has ended'))

  def close(self, drain_seconds: float = 30.0) -> None:
    """Takes no more requests, and returns when those it has are done.

    After `drain_seconds` those that still run end as they are, with the reason
    'closed'.
    """
    with self._work:
      self._closed = True
      self._work.notify_all()
    until = time.monotonic() + drain_seconds
    while self._live and time.monotonic() < until:
      self._make_progress()
    self._abandoned = True
    while self._live:
      self._make_progress()
    if self._thread is not None:
      self._thread.join()
    for _, done in self._reloads:
      done.cancel()

  def _make_progress(self):
    if self._runs:
      time.sleep(POLL)
    else:
      self.step()

  def step(self) -> bool:
    """Does what is next: some reading and one call that makes tokens.

    What fails, fails the requests that the engine has, and not the engine.

    Returns:
      Whether there was anything to do.
    """
    self.warm_up()
    try:
      return self._step()
    except Exception as error:  # whatever it is, later requests are served
      logging.exception('a step of the engine failed')
      self._fail_all(error)
      return True

  def _step(self):
    call = self._slots.end()
    if call is not None and (self._slots.constrained or self._reloads):
      self._deliver(call)  # what is next depends on these tokens
      call = None
    self._drop()
    self._swap()
    did_read = self._read()
    self._fill_slots()
    called = self._slots.begin(self.generator.params)
    if call is not None:
      self._deliver(call)  # while the device makes the next ones
    return did_read or called or call is not None

  def _early_end(self, job):
    return job.early_end() or ('closed' if self._abandoned else '')

  def _drop(self):
    """Ends requests that were cancelled, are late, or are abandoned."""
    if self._abandoned:
      self._later.clear()
    with self._work:
      ends = {job: self._early_end(job) for job in self._live}
    ends = {job: reason for job, reason in ends.items() if reason}
    for job, reason in ends.items():
      with self._work:
        if job in self._queue:
          self._queue.remove(job)
      self._forget(job)
      if job.done:  # and its text was being read for its state
        self._finish(job, None)
        continue
      for slot, row in enumerate(self._slots.rows):
        if row is not None and row.job is job:
          self._slots.free(slot)
          self._end(row, reason)
      while job.placed < job.request.n:
        self._end(job.next_row(self._served.pieces), reason)

  def _forget(self, job):
    """Removes a job from all that is being read or waits for a slot."""
    if self._current is not None and self._current.job is job:
      self._current = None
    if job in self._ready:
      self._ready.remove(job)
    for each in [*self._wanted]:
      if each.job is job:
        self._wanted.remove(each)

  def _fail(self, job, error):
    """Fails one request."""
    self._forget(job)
    for slot, row in enumerate(self._slots.rows):
      if row is not None and row.job is job:
        row.ended = True
        self._slots.free(slot)
    with self._work:
      self._live.discard(job)
      self._ended['error'] += 1
    job.handle.finish(None, error)

  def _fail_all(self, error):
    """Fails all requests, and begins with empty slots."""
    with self._work:
      jobs = [*self._live]
      self._queue.clear()
    for job in jobs:
      self._fail(job, error)
    self._current = None
    self._later.clear()
    if jobs:
      assert self._programs is not None
      self._slots.reset()

  # Reading.

  def _swap(self):
    """Swaps the parameters once no request needs the old ones."""
    if not self._reloads or self._current is not None:
      return
    if self._ready or self._wanted or self._slots.used:
      return
    with self._work:
      new, done = self._reloads.popleft()
    self._later.clear()
    self._store.clear()
    self._served = new
    done.set_result(None)

  def _choose_reading(self):
    """Chooses what to read next: who came first, then replies."""
    enough = max(READY, self.options.slots - self._slots.used)
    if self._current is not None or len(self._ready) >= enough:
      return
    if self._wanted:
      self._current = self._wanted.popleft()
      return
    job = None
    with self._work:
      if self._queue and not self._reloads:
        job = self._queue.popleft()
    if job is not None:
      self._begin(job)
    elif self._later:
      self._current = self._later.popleft()

  def _begin(self, job):
    try:
      current = self._reader.prompt(self._served, job, self._prompt_read)
    except errors.InputError as error:  # a state of the parameters before
      self._fail(job, error)
      return
    job.timing.begun = job.seconds()
    job.cached_tokens = current.skipped
    self._totals['prompt_tokens'] += len(job.ids)
    self._totals['cached_tokens'] += current.skipped
    self._current = current

  def _read(self):
    """Reads a chunk, or more while slots are free. Returns whether it did."""
    end = time.monotonic() + self.options.read_seconds
    did_read = read = self._read_chunk()
    while read and not read.job.done:  # a reply that is read again can wait
      if self._slots.used + len(self._ready) >= self.options.slots:
        break
      jax.block_until_ready(read.entry.logits_1xV)
      read = time.monotonic() < end and self._read_chunk()
    return bool(did_read)

  def _read_chunk(self):
    """Reads what is next. Returns its Reading, or None."""
    self._choose_reading()
    current = self._current
    if current is None:
      return None
    if self._reader.advance(self.generator.params, current):
      self._current = None
      current.done(current)
    return current

  def _prompt_read(self, current):
    job = current.job
    job.read, job.key = current.entry, current.key
    job.timing.read = job.seconds()
    if job.request.max_new_tokens:
      self._ready.append(job)
    else:
      self._end(job.next_row(self._served.pieces), 'length')

  def _fill_slots(self):
    """Gives free slots to completions whose prompt has been read."""
    for slot in self._slots.free_slots():
      if not self._ready:
        return
      job = self._ready[0]
      self._slots.place(slot, job.next_row(self._served.pieces))
      if job.placed == job.request.n:
        self._ready.popleft()

  # New tokens.

  def _deliver(self, call):
    """Gives the rows of a call their tokens."""
    for slot, row in enumerate(call.rows):
      if row is None or row.ended:
        continue
      try:
        self._give(row, slot, call)
        if row.matcher is not None:
          self._slots.allow(slot)
      except Exception as error:  # the other requests go on
        logging.exception('a request failed')
        row.ended = True
        self._fail(row.job, error)
        continue
      if row.reason:
        if self._slots.rows[slot] is row:
          self._slots.free(slot)
        self._end(row, row.reason)

  def _give(self, row, slot, call):
    made, wanted = call.made_B[slot], row.job.request.alternatives
    likeliest = ()
    if wanted:
      best = call.likeliest_BxNxK[slot][:made]
      likeliest = [tuple(pairs[:wanted]) for pairs in best]
    tokens = row.write(
      call.tokens_BxN[slot][:made], call.logprobs_BxN[slot][:made], likeliest
    )
    if not tokens:
      return
    timing = row.job.timing
    if timing.first_token is None:
      timing.first_token = row.job.seconds()
      self._first_token.append(timing.first_token)
    self._totals['new_tokens'] += len(tokens)
    row.job.handle.push(tokens)

  def _end(self, row, reason):
    """Ends a completion; with the last one, the request."""
    row.ended = True
    job = row.job
    job.completions[row.choice] = row.completion(reason)
    with self._work:
      self._ended[reason] += 1
    if not job.done:
      return
    job.timing.ended = job.seconds()
    if job.request.returns_state and reason in IN_TIME:
      ids = job.text_ids(0)
      self._wanted.append(
        self._reader.text(self._served, job, ids, self._state_read)
      )
    else:
      self._finish(job, None)
      self._remember(job)

  def _state_read(self, current):
    """The text of a request that wants its state has been read."""
    job = current.job
    given, ids = job.request.state, job.text_ids(0)
    ended = given is not None and given.ended
    if len(ids):
      ended = bool(ids[-1] == self.tokenizer.boundary)
    entry = current.entry
    self._finish(
      job,
      states.State(
        self._served.digest,
        current.key.hex(),
        len(ids) + (given.count if given else 0),
        ended,
        tuple(jax.tree.leaves(entry.state)),
        entry.logits_1xV,
      ),
    )

  def _finish(self, job, state):
    with self._work:
      self._live.discard(job)
    job.handle.finish(
      requests.Reply(
        tuple(job.completions),
        len(job.ids),
        job.cached_tokens,
        job.timing,
        state,
      )
    )

  def _remember(self, job):
    """Plans to read the replies of a model trained on turns."""
    boundary = self._served.segment_end
    if boundary is None or not self.options.prefix_bytes:
      return
    for choice, completion in enumerate(job.completions):
      if completion.reason not in ('boundary', 'length') or not completion.ids:
        continue
      ids = job.text_ids(choice)
      if ids[-1] != boundary:
        ids = np.append(ids, np.int32(boundary))  # as the next turn frames it
      self._later.append(
        self._reader.text(self._served, job, ids, lambda _: None)
      )
