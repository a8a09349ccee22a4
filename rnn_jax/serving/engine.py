"""Serves many requests at once with one model, each as if it had it to itself.

    engine = Engine(bundle, Options(slots=16))
    with engine.running():
      handle = engine.submit(Request('def main(', max_new_tokens=50))
      print(handle.result().completions[0].text)

A request waits in a queue, its prompt is read chunk by chunk (reading.py), its
state enters a slot, and all slots make tokens together until a row ends and
leaves its slot to the next one. Between two calls that make tokens at most one
chunk is read, so that a long prompt delays the others' next token by one chunk.

A request's tokens and log-probabilities are the same bits whatever else is
served: programs have fixed shapes, rows never mix (programs.py), a text decides
where its chunks begin, and a state is only reused if the same programs made it
of the same tokens. Decoding makes a state in another program than reading, so a
reply is read again, in idle moments, before the next turn continues from it.

One thread runs `run` or calls `step`; all else may be called from any thread.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from absl import logging

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import generate as generate_lib
from rnn_jax.inference import text as text_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import constraint as constraint_lib
from rnn_jax.serving import prefixes
from rnn_jax.serving import programs as programs_lib
from rnn_jax.serving import reading
from rnn_jax.serving import requests
from rnn_jax.serving import sampler
from rnn_jax.serving import states

READY = 4  # requests that are read ahead of a free slot
LATER = 64  # replies that wait to be read; older ones are forgotten
NAP = 0.5  # seconds that an idle engine waits before it looks again
RECENT = 1024  # latencies that the statistics are of


@dataclasses.dataclass(frozen=True)
class Options:
  """How an engine serves.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  slots: int = 16  # rows that make tokens together
  steps: int = 8  # tokens of a row between two visits to the host, at most
  chunks: tuple[int, ...] = reading.SIZES  # lengths in which prompts are read
  queue: int = 256  # requests that may wait
  prefix_bytes: int = 256 * 2**20  # of stored states; 0: none is stored
  weights: str = 'float32'  # or 'int8', as in inference/generate.py

  def __post_init__(self):
    for name in ('slots', 'steps', 'queue'):
      if getattr(self, name) < 1:
        errors.refuse(name, getattr(self, name), 'give 1 or more')
    if self.prefix_bytes < 0:
      errors.refuse('prefix_bytes', self.prefix_bytes, 'give 0 or more')
    reading.check_sizes(self.chunks)


@dataclasses.dataclass(frozen=True)
class Stats:
  """What an engine does now, and did since its start."""

  slots: int
  active: int  # slots in use
  queued: int  # requests without a slot
  requests: int
  ended: dict[str, int]  # completions by reason; 'error' counts requests
  prompt_tokens: int
  read_tokens: int  # of them and of replies, in fact read
  new_tokens: int
  calls: int  # that made tokens
  steps: int  # in them
  prefixes: prefixes.Counts
  first_token_seconds: tuple[float, ...]  # the last RECENT requests
  compiled: int


class Engine:
  """See the module's docstring.

  Attributes:
    options: as given.
    generator: the model and its tokenizer, as inference/generate.py has them.
  """

  def __init__(
    self,
    bundle: bundle_lib.Bundle | generate_lib.Generator,
    options: Options = Options(),  # noqa: B008, frozen
  ):
    """Takes a model; `warm_up` or the first step compiles its programs.

    A Generator's weights are as they are, whatever `options.weights`.

    Raises:
      InputError: the model doesn't write text.
    """
    self.options = options
    self._programs: programs_lib.Programs | None = None
    self._lock = threading.Lock()
    self._work = threading.Condition(self._lock)
    self._queue: collections.deque[_Job] = collections.deque()
    self._reading: _Reading | None = None
    self._ready: collections.deque[_Job] = collections.deque()
    self._replies: collections.deque[_Reading] = collections.deque()
    self._later: collections.deque[_Reading] = collections.deque(maxlen=LATER)
    self._rows: list[_Row | None] = [None] * options.slots
    self._table = _table(options.slots)
    self._on_device: Any = None  # the table's copy; None: it has changed
    self._waiting: _Call | None = None
    self._store = prefixes.Store(options.prefix_bytes)
    self._reloads: collections.deque[tuple[Any, futures.Future]]
    self._reloads = collections.deque()
    self._closed = False
    self._abandoned = False
    self._totals: collections.Counter[str] = collections.Counter()
    self._ended: collections.Counter[str] = collections.Counter()
    self._first_token: collections.deque[float]
    self._first_token = collections.deque(maxlen=RECENT)
    self._use(self._load(bundle))

  def _load(self, bundle):
    if isinstance(bundle, generate_lib.Generator):
      return bundle
    return generate_lib.Generator.from_bundle(bundle, self.options.weights)

  def _use(self, generator):
    self.generator = generator
    self._grammars = constraint_lib.Grammars(generator.tokenizer)
    self.__dict__.pop('model_digest', None)
    self._root = hashlib.sha256(
      f'{self.model_digest} {self.options.chunks}'.encode()
    ).digest()

  @property
  def tokenizer(self) -> tokenizer_lib.Tokenizer:
    """The model's."""
    return self.generator.tokenizer

  @functools.cached_property
  def model_digest(self) -> str:
    """A digest of all that the model's numbers follow from, in hexadecimal."""
    model = self.generator.model
    facts = (model.config, model.cell_config, model.policy)
    spec = repr(sorted(self.tokenizer.spec().items()))
    return states.digest(self.generator.params, *map(repr, facts), spec)

  def warm_up(self) -> int:
    """Compiles all programs and checks that rows agree.

    Returns:
      How many programs there are; none is compiled later.

    Raises:
      RuntimeError: rows with the same state differ, so that this machine can't
        serve exactly.
    """
    if self._programs is None:
      options = self.options
      programs = programs_lib.Programs(
        self.generator.model,
        self.generator.params,
        options.slots,
        options.steps,
        options.chunks,
      )
      words = np.zeros(
        (options.slots, sampler.words(programs.vocabulary)), np.uint32
      )
      self._allowed = words
      self._nothing_allowed = jax.device_put(words.copy(), programs.device)
      self._programs = programs
      self._check_rows()
      self._slots = programs.empty()
    return self._programs.compiled

  def _check_rows(self):
    """Makes the same tokens in all slots, and compares them."""
    programs = self._programs
    params = self.generator.params
    chunk = np.arange(programs.sizes[0], dtype=np.int32) % programs.vocabulary
    state, logits = programs.read(params, programs.fresh, chunk)
    slots = programs.empty()
    row = programs_lib.Row(state, logits, programs.none_V, programs.zeros_V)
    for slot in range(self.options.slots):
      slots = programs.place(slots, slot, row)
    table = _table(self.options.slots)
    table.active_B[:] = True
    table.limit_B[:] = self.options.steps
    rows = jax.device_put(table, programs.device)
    slots, produced = programs.decode(
      params, slots, rows, self._nothing_allowed, self.options.steps
    )
    for x in jax.tree.leaves(jax.device_get((slots, produced))):
      same = x[:1].tobytes() * len(x) == x.tobytes()
      if not same:
        raise RuntimeError(
          f'slots={self.options.slots}: rows with the same state gave different'
          ' bits on this device: give another number of slots'
        )

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
    ids = self.encode(request)
    matcher = None
    if request.constraint is not None:
      matcher = self._grammars.matcher(request.constraint)
    job = _Job(request, ids, requests.Handle(len(ids), listener), matcher)
    with self._work:
      if self._closed:
        raise requests.ClosedError('the engine is closed')
      if len(self._queue) >= self.options.queue:
        raise requests.QueueFullError(
          f'{len(self._queue)} requests wait, as many as may: try again later'
        )
      self._queue.append(job)
      self._totals['requests'] += 1
      self._work.notify_all()
    return job.handle

  def encode(self, request: requests.Request) -> np.ndarray:
    """Returns the ids that are read for a request, after its state.

    Raises:
      InputError: the model can't serve it.
    """
    generator, state = self.generator, request.state
    boundary = np.array([self.tokenizer.boundary], np.int32)
    if state is None:
      ids = generator.encode(request.prompt, request.continues)
      if not len(ids):
        errors.refuse('prompt', request.prompt, 'there is nothing to read')
    elif isinstance(request.prompt, np.ndarray):
      ids = request.prompt
    else:
      ids = self.tokenizer.encode(request.prompt)
      if generator.asks and len(ids):
        ids = np.concatenate([ids, boundary])
    if state is not None and generator.asks and len(ids) and not state.ended:
      ids = np.concatenate([boundary, ids])
    self._check_ids(ids)
    if state is not None:
      self._check_state(state)
    before = state.count if state is not None else 0
    generator.check_positions(before + len(ids), request.max_new_tokens)
    for token in request.sampling.logit_bias:
      if not 0 <= token < self.tokenizer.size:
        errors.refuse(
          'logit_bias', token, f'give tokens 0 to {self.tokenizer.size - 1}'
        )
    return ids.astype(np.int32)

  def _check_ids(self, ids):
    size = self.tokenizer.size
    if ids.ndim != 1 or ids.dtype.kind not in 'iu':
      errors.refuse('prompt', ids.dtype.name, 'give whole numbers, one axis')
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
      errors.refuse('prompt', int(ids.max()), f'give ids from 0 to {size - 1}')

  def _check_state(self, state):
    if state.model != self.model_digest:
      raise errors.InputError(
        f'state of model {state.model[:12]}: this is model '
        f'{self.model_digest[:12]}: read the text again'
      )

  def encode_turns(self, turns: Sequence[str]) -> np.ndarray:
    """Returns the ids of a conversation whose next turn is the model's.

    They are framed as in training: a boundary before and after each turn.

    Raises:
      InputError: the model wasn't trained on turns, a turn is empty, or the
        vocabulary doesn't cover one.
    """
    if not self.generator.asks:
      raise errors.InputError(
        "the run's model wasn't trained on turns: train one with "
        "task.name='dialogue'"
      )
    boundary = np.array([self.tokenizer.boundary], np.int32)
    parts = [boundary]
    for turn in turns:
      ids = self.tokenizer.encode(turn.strip())
      if not len(ids):
        errors.refuse('turn', turn, 'say something')
      parts += [ids, boundary]
    return np.concatenate(parts)

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
    self._check_state(state)
    expected = jax.eval_shape(
      lambda: self.generator.model.apply({}, 1, method='init_state')
    )
    shapes = [(x.shape, x.dtype) for x in jax.tree.leaves(expected)]
    if [(x.shape, x.dtype) for x in state.leaves] != shapes:
      raise errors.InputError(
        'state: its arrays have other shapes than the model: read the text '
        'again'
      )
    return state

  def reload(self, bundle: bundle_lib.Bundle) -> futures.Future:
    """Replaces the model's parameters between two steps.

    Requests that have begun end on the old ones, later ones wait. Stored states
    are forgotten. No program is compiled.

    Returns:
      A future that is done when the new parameters serve.

    Raises:
      InputError: another config, tokenizer or shape.
    """
    new, old = self._load(bundle), self.generator
    shapes = [
      jax.tree.map(lambda x: (x.shape, x.dtype), each.params)
      for each in (old, new)
    ]
    if (
      shapes[0] != shapes[1]
      or new.model != old.model
      or new.tokenizer.spec() != old.tokenizer.spec()
    ):
      raise errors.InputError(
        'reload: the model differs from the one that is served in more than '
        'its parameters: start another engine'
      )
    done: futures.Future = futures.Future()
    with self._work:
      self._reloads.append((new, done))
      self._work.notify_all()
    return done

  def stats(self) -> Stats:
    """Returns the statistics."""
    with self._lock:
      totals = self._totals
      return Stats(
        self.options.slots,
        sum(row is not None for row in self._rows),
        len(self._queue) + len(self._ready) + (self._reading is not None),
        totals['requests'],
        dict(self._ended),
        totals['prompt_tokens'],
        totals['read_tokens'],
        totals['new_tokens'],
        totals['calls'],
        totals['steps'],
        self._store.counts,
        tuple(self._first_token),
        self._programs.compiled if self._programs else 0,
      )

  def generate(
    self,
    prompts: Sequence[str | np.ndarray],
    request: requests.Request = requests.Request(),  # noqa: B008, frozen
  ) -> list[requests.Reply]:
    """Continues prompts. Returns a reply for each.

    The prompts' indices are as in Generator.generate. Without a running thread
    this one makes the steps.

    Args:
      prompts: texts or ids.
      request: how to continue them; its own prompt is unused.

    Raises:
      InputError: the model can't serve one.
    """
    handles = []
    for index, prompt in enumerate(prompts):
      asked = dataclasses.replace(
        request, prompt=prompt, index=request.index + index * request.n
      )
      while True:
        try:
          handles.append(self.submit(asked))
          break
        except requests.QueueFullError:
          self._progress()
    while not self._runs and not all(handle.done for handle in handles):
      self.step()
    return [handle.result() for handle in handles]

  def _progress(self):
    if self._runs:
      time.sleep(0.01)
    else:
      self.step()

  # What runs the engine.

  _runs = False

  @contextlib.contextmanager
  def running(self, drain_seconds: float = 30.0) -> Iterator['Engine']:
    """Runs the engine in a thread of its own; closes it at the end."""
    self.warm_up()
    thread = threading.Thread(target=self.run, name='engine', daemon=True)
    self._runs = True
    thread.start()
    try:
      yield self
    finally:
      self.close(drain_seconds)
      thread.join()

  def run(self) -> None:
    """Makes steps until `close`. What fails, fails its requests only."""
    self._runs = True
    self.warm_up()
    try:
      while not (self._closed and (self._abandoned or not self._busy())):
        if not self.step():
          with self._work:
            if not self._busy() and not self._closed:
              self._work.wait(NAP)
    finally:
      self._fail_all(requests.ClosedError('the engine has ended'))
      self._runs = False

  def close(self, drain_seconds: float = 30.0) -> None:
    """Takes no more requests, and ends when those it has are done.

    After `drain_seconds` those still running end as they are, with the reason
    'closed'. Without a running thread this one makes the steps.
    """
    with self._work:
      self._closed = True
      self._work.notify_all()
    until = time.monotonic() + drain_seconds
    while self._pending() and time.monotonic() < until:
      if self._runs:
        time.sleep(0.005)
      else:
        self.step()
    with self._work:
      self._abandoned = True
      self._work.notify_all()
    if not self._runs:
      self.step()

  def step(self) -> bool:
    """Does what is next: at most one chunk and one call that makes tokens.

    Returns:
      Whether there was anything to do.
    """
    self.warm_up()
    try:
      return self._step()
    except Exception as error:  # noqa: BLE001, the engine goes on serving
      logging.exception('a step of the engine failed')
      self._fail_all(error)
      self._slots = self._programs.empty()
      return True

  def _step(self):
    call = self._fetch()
    if call is not None and any(self._table.constrained_B):
      self._deliver(call)  # the next tokens depend on these
      call = None
    self._drop()
    self._admit()
    did_read = self._read_chunk()
    self._fill_slots()
    called = self._dispatch()
    if call is not None:
      self._deliver(call)
    return did_read or called or call is not None

  def _busy(self):
    return bool(
      self._pending() or self._later or self._reloads or self._waiting
    )

  def _pending(self):
    """Whether a request hasn't ended."""
    return bool(
      self._queue
      or self._reading is not None
      or self._ready
      or self._replies
      or any(self._rows)
    )

  # Requests that end before their time.

  def _drop(self):
    """Ends requests that were cancelled, are late, or that nobody waits for."""
    now = time.monotonic()
    with self._lock:
      waiting = [job for job in self._queue if job.ends(now, self._abandoned)]
      for job in waiting:
        self._queue.remove(job)
    current = self._reading
    if current and current.job and current.job.ends(now, self._abandoned):
      self._reading = None
      waiting.append(current.job)
    for job in [*self._ready]:
      if job.ends(now, self._abandoned):
        self._ready.remove(job)
        waiting.append(job)
    for slot, row in enumerate(self._rows):
      if row is not None and (reason := row.job.ends(now, self._abandoned)):
        self._free(slot)
        self._end(row, reason)
    for job in waiting:
      reason = job.ends(now, self._abandoned)
      for choice in range(len(job.completions)):
        if job.completions[choice] is None and choice >= job.placed:
          self._end(_Row(job, choice, self.tokenizer), reason)

  def _fail_all(self, error):
    """Fails every request that hasn't ended."""
    with self._lock:
      jobs = {job.handle: job for job in self._queue}
      self._queue.clear()
    more = [*self._ready, *(row.job for row in self._rows if row)]
    more += [x.job for x in (self._reading, *self._replies) if x and x.job]
    jobs |= {job.handle: job for job in more}
    self._reading = self._waiting = None
    self._ready.clear()
    self._replies.clear()
    self._later.clear()
    for slot in range(self.options.slots):
      self._free(slot)
    for job in jobs.values():
      self._fail(job, error)

  def _fail(self, job, error):
    if not job.handle.done:
      self._ended['error'] += 1
      job.handle.finish(None, error)

  # Reading.

  def _admit(self):
    """Begins to read the next request, or swaps the parameters."""
    if self._reloads and self._reading is None:
      if not (self._ready or self._replies or any(self._rows)):
        new, done = self._reloads.popleft()
        self._store.clear()
        self._later.clear()
        self._use(new)
        done.set_result(None)
    if self._reading is not None or len(self._ready) >= READY:
      return
    if self._replies:
      self._reading = self._replies.popleft()
      return
    if self._reloads:
      return
    with self._lock:
      job = self._queue.popleft() if self._queue else None
    if job is not None:
      try:
        self._begin(job)
      except errors.InputError as error:  # a state of the model before
        self._fail(job, error)
    elif self._later:
      self._reading = self._later.popleft()

  def _begin(self, job):
    """Begins to read a request's prompt, after what is known of it."""
    programs = self._programs
    job.timing.begun = time.monotonic() - job.submitted
    given = job.request.state
    job.root = self._root
    entry = prefixes.Entry(programs.fresh, programs.no_logits)
    if given is not None:
      self._check_state(given)
      job.root = bytes.fromhex(given.text)
      tree = jax.tree.structure(programs.fresh)
      state, logits = jax.device_put(
        (jax.tree.unflatten(tree, given.leaves), given.logits_1xV),
        programs.device,
      )
      entry = prefixes.Entry(state, logits)
    job.base = entry
    self._reading = self._plan(job, job.ids, entry)
    job.cached_tokens = self._reading.skipped
    self._totals['prompt_tokens'] += len(job.ids)

  def _plan(self, job, ids, entry):
    """Returns the reading of a text from the longest stored beginning on."""
    boundary = self.tokenizer.boundary if self.generator.asks else None
    chunks = reading.plan(job.root, ids, boundary, self.options.chunks)
    count, stored = self._store.longest(chunks)
    if job.read is not None:  # the prompt's end, which may not be stored
      known = {chunk.key: n for n, chunk in enumerate(chunks, 1)}
      if known.get(job.key, 0) > count:
        count, stored = known[job.key], job.read
    skipped = sum(len(chunk.tokens) for chunk in chunks[:count])
    key = chunks[-1].key if chunks else job.root
    left = collections.deque(chunks[count:])
    return _Reading(left, stored or entry, key, skipped, job)

  def _read_chunk(self):
    """Reads one chunk. Returns whether there was one."""
    current = self._reading
    if current is None:
      return False
    if current.chunks:
      chunk = current.chunks.popleft()
      entry = prefixes.Entry(
        *self._programs.read(
          self.generator.params, current.entry.state, chunk.tokens
        )
      )
      self._totals['read_tokens'] += len(chunk.tokens)
      current.entry = entry
      if chunk.kept:
        self._store.put(chunk.key, entry)
    if not current.chunks:
      self._reading = None
      current.finish(self, current)
    return True

  def _prompt_read(self, current):
    """The prompt of a request has been read."""
    job = current.job
    job.read, job.key = current.entry, current.key
    job.timing.read = time.monotonic() - job.submitted
    if job.request.max_new_tokens:
      self._ready.append(job)
      return
    self._end(_Row(job, 0, self.tokenizer), 'length')

  def _reply_read(self, current):
    """The reply of a request whose state is wanted has been read."""
    job = current.job
    self._finish(job, self._state(job, current.entry, current.key))

  def _state(self, job, entry, key):
    given, ids = job.request.state, job.text_ids()
    count = len(ids) + (given.count if given else 0)
    ended = given.ended if given and not len(ids) else False
    if len(ids):
      ended = bool(ids[-1] == self.tokenizer.boundary)
    leaves = tuple(jax.tree.leaves(entry.state))
    return states.State(
      self.model_digest, key.hex(), count, ended, leaves, entry.logits_1xV
    )

  # Slots.

  def _fill_slots(self):
    """Gives free slots to requests that have been read."""
    free = [slot for slot, row in enumerate(self._rows) if row is None]
    while free and self._ready:
      job = self._ready[0]
      self._place(job, free.pop(0))
      if job.placed == job.request.n:
        self._ready.popleft()

  def _place(self, job, slot):
    row = _Row(job, job.placed, self.tokenizer)
    job.placed += 1
    request, programs = job.request, self._programs
    sampling = request.sampling
    prompt, bias = programs.none_V, programs.zeros_V
    if sampling.counts_tokens:
      prompt = np.zeros(programs.vocabulary, bool)
      prompt[job.ids] = True
      prompt = jax.device_put(prompt, programs.device)
    if sampling.logit_bias:
      bias = np.zeros(programs.vocabulary, np.float32)
      bias[[*sampling.logit_bias]] = [*sampling.logit_bias.values()]
      bias = jax.device_put(bias, programs.device)
    entering = programs_lib.Row(
      job.read.state, job.read.logits_1xV, prompt, bias
    )
    self._slots = programs.place(self._slots, slot, entering)
    self._rows[slot] = row
    values = sampler.Rows(
      True,
      request.seed,
      request.index + row.choice,
      sampling.temperature,
      min(sampling.top_k, np.iinfo(np.int32).max),
      sampling.top_p,
      sampling.min_p,
      sampling.repetition_penalty,
      sampling.presence_penalty,
      sampling.frequency_penalty,
      bool(sampling.logit_bias),
      row.matcher is not None,
      min(request.max_new_tokens, np.iinfo(np.int32).max),
      request.min_new_tokens,
      self.tokenizer.boundary if request.stop_at_boundary else -1,
      request.alternatives,
    )
    for column, value in zip(self._table, values, strict=True):
      column[slot] = value
    if row.matcher is not None:
      self._allowed[slot] = row.matcher.allowed()
    self._on_device = None

  def _free(self, slot):
    self._rows[slot] = None
    self._table.active_B[slot] = False
    self._table.constrained_B[slot] = False
    self._on_device = None

  # Making tokens.

  def _dispatch(self):
    """Begins a call that makes tokens. Returns whether a row is active."""
    if not any(self._rows):
      return False
    programs = self._programs
    constrained = any(self._table.constrained_B)
    count = 1 if constrained else self._steps()
    if self._on_device is None:
      # Copies: the device may read the host's arrays later.
      table = jax.tree.map(np.copy, self._table)
      self._on_device = jax.device_put(table, programs.device)
    allowed = self._nothing_allowed
    if constrained:
      allowed = jax.device_put(self._allowed.copy(), programs.device)
    self._slots, produced = programs.decode(
      self.generator.params, self._slots, self._on_device, allowed, count
    )
    self._waiting = _Call(produced, [*self._rows])
    self._totals['calls'] += 1
    self._totals['steps'] += count
    return True

  def _steps(self):
    """Returns how many steps to make: fewer if a row's end is waited for."""
    left = [
      row.job.request.max_new_tokens - row.made for row in self._rows if row
    ]
    waited = self._ready or self._reading is not None or self._queue
    return min(self.options.steps, min(left) if waited else max(left))

  def _fetch(self):
    """Waits for the call that was begun, and frees the rows that it ended."""
    call, self._waiting = self._waiting, None
    if call is None:
      return None
    produced = call.produced
    wanted = any(row and row.job.request.alternatives for row in call.rows)
    few = produced[:3]
    call.produced = jax.device_get(tuple(produced) if wanted else few)
    made_B, tokens_BxN = call.produced[:2]
    for slot, row in enumerate(call.rows):
      if row is None:
        continue
      made = int(made_B[slot])
      row.made += made
      if made and row.stops(tokens_BxN[slot, made - 1]):
        row.reason = 'boundary'
      elif row.made >= row.job.request.max_new_tokens:
        row.reason = 'length'
      if row.reason and self._rows[slot] is row:
        self._free(slot)
    return call

  def _deliver(self, call):
    """Gives the rows of a call their tokens."""
    lists = [x.tolist() for x in call.produced[1:]]
    made_B = call.produced[0].tolist()
    for slot, row in enumerate(call.rows):
      if row is None or row.ended:
        continue
      try:
        stopped = self._give(row, made_B[slot], [x[slot] for x in lists])
      except Exception as error:  # noqa: BLE001, the others go on
        logging.exception('a request failed')
        self._forget(row)
        self._fail(row.job, error)
        continue
      if stopped or row.reason:
        if self._rows[slot] is row:
          self._free(slot)
        self._end(row, 'stop' if stopped else row.reason)
      elif row.matcher is not None:
        self._allowed[slot] = row.matcher.allowed()

  def _forget(self, row):
    """Removes all rows of a request."""
    for slot, other in enumerate(self._rows):
      if other is not None and other.job is row.job:
        other.ended = True
        self._free(slot)
    row.ended = True
    if row.job in self._ready:
      self._ready.remove(row.job)

  def _give(self, row, made, values):
    """Gives a row its new tokens. Returns whether a stop string ended it."""
    ids, logprobs, *likeliest = values
    wanted, tokens = row.job.request.alternatives, []
    if not row.ids and made:
      timing = row.job.timing
      if timing.first_token is None:
        timing.first_token = time.monotonic() - row.job.submitted
        self._first_token.append(timing.first_token)
    for n in range(made):
      row.writer.write((ids[n],))
      row.ids.append(ids[n])
      row.logprobs.append(logprobs[n])
      if row.reason and n + 1 == made:
        row.writer.finish()
      best = ()
      if wanted:
        best = tuple(
          zip(likeliest[0][n][:wanted], likeliest[1][n][:wanted], strict=True)
        )
      tokens.append(
        requests.Token(row.choice, ids[n], row.new_text(), logprobs[n], best)
      )
      if row.writer.stopped:
        break
    self._totals['new_tokens'] += len(tokens)
    if row.matcher is not None:
      row.matcher.read([token.id for token in tokens])
    if tokens:
      row.job.handle.push(tuple(tokens))
    return row.writer.stopped

  def _end(self, row, reason):
    """Ends one completion; with the last one, the request."""
    row.ended = True
    job = row.job
    row.writer.finish()
    if rest := row.new_text():  # a held part that no token follows any more
      last = row.ids[-1], row.logprobs[-1]
      del last
      row.rest = rest
    job.completions[row.choice] = requests.Completion(
      row.writer.text, tuple(row.ids), tuple(row.logprobs), reason
    )
    with self._lock:
      self._ended[reason] += 1
    if any(completion is None for completion in job.completions):
      return
    job.timing.ended = time.monotonic() - job.submitted
    if job.request.returns_state and job.read is not None:
      current = self._plan(job, job.text_ids(), job.base)
      current.finish = Engine._reply_read
      self._replies.append(current)
      return
    self._finish(job, None)
    self._remember(job)

  def _finish(self, job, state):
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
    if not self.generator.asks or not self.options.prefix_bytes:
      return
    for completion in job.completions:
      if completion.reason not in ('boundary', 'length') or not completion.ids:
        continue
      ids = [*completion.ids]
      if ids[-1] != self.tokenizer.boundary:
        ids.append(self.tokenizer.boundary)  # as the next turn frames it
      ids = np.concatenate([job.ids, np.array(ids, np.int32)])
      current = self._plan(job, ids, job.base)
      current.finish = _nothing
      current.job = None
      self._later.append(current)


class _Job:
  """A request within the engine."""

  def __init__(self, request, ids, handle, matcher):
    self.request = request
    self.ids = ids
    self.handle = handle
    self.matcher = matcher
    self.submitted = time.monotonic()
    self.timing = requests.Timing()
    self.completions = [None] * request.n
    self.placed = 0  # completions that have or had a slot
    self.cached_tokens = 0
    self.root = b''  # key of the state that the ids follow
    self.base = None  # that state, an Entry
    self.read = None  # the state after the prompt, an Entry
    self.key = b''  # of that state

  def ends(self, now, abandoned):
    """Returns why it ends before its time, or ''."""
    if self.handle.cancelled:
      return 'cancelled'
    late = self.request.deadline_seconds
    if late is not None and now - self.submitted > late:
      return 'deadline'
    return 'closed' if abandoned else ''

  def text_ids(self):
    """Returns the prompt's ids and those of the only completion."""
    (completion,) = self.completions
    return np.concatenate([self.ids, np.array(completion.ids, np.int32)])


class _Row:
  """A completion that is being made."""

  def __init__(self, job, choice, tokenizer):
    self.job = job
    self.choice = choice
    self.made = 0  # tokens on the device
    self.ids = []
    self.logprobs = []
    self.reason = ''  # why the device ended it
    self.ended = False
    self.writer = text_lib.Writer(tokenizer, job.request.stop)
    self.matcher = job.matcher and job.matcher.copy()
    self.rest = ''
    self._boundary = tokenizer.boundary
    self._shown = 0

  def stops(self, token):
    """Returns whether a token ends it."""
    return self.job.request.stop_at_boundary and token == self._boundary

  def new_text(self):
    """Returns the text since the last call."""
    shown, self._shown = self._shown, len(self.writer.text)
    return self.writer.text[shown:]


@dataclasses.dataclass
class _Reading:
  """A text that is being read."""

  chunks: collections.deque[reading.Chunk]
  entry: prefixes.Entry  # after what was read so far
  key: bytes  # of the state at the end
  skipped: int  # tokens whose state was stored
  job: Any
  finish: Any = Engine._prompt_read


@dataclasses.dataclass
class _Call:
  """A call that makes tokens, and the rows it makes them for."""

  produced: Any
  rows: list[_Row | None]


def _nothing(engine, current):
  """Follows the reading of a text that nobody waits for."""
  del engine, current


def _table(slots):
  table = sampler.Rows(*(np.zeros(slots, kind) for kind in sampler.KINDS))
  table.temperature_B[:] = 1
  table.top_p_B[:] = 1
  table.repetition_B[:] = 1
  table.boundary_B[:] = -1
  return table
