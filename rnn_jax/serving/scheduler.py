"""What an engine does in a step: which text is read, which row has a slot.

    queue -> read, chunk by chunk -> slot: one token per step -> reply

One thread does all of it. Between two calls that make tokens one chunk is read,
or a piece of one while most slots write and a call makes few tokens, and more
while slots are free, for the free slots' share of `read_seconds`: a prompt of
any length delays the others' next token by no more. Where no slot writes there
is no such token, and a burst is read for longer: rows that begin together share
their steps. While the device reads or makes tokens, the host prepares the next
chunk or delivers the tokens before.
"""

import collections
import math
import time

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.serving import defects
from rnn_jax.serving import prefixes
from rnn_jax.serving import reading
from rnn_jax.serving import requests
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import slots as slots_lib
from rnn_jax.serving import states
from rnn_jax.serving import work

IDLE = 10  # times read_seconds, for reading while no slot writes
SHARE = 0.5  # of a call's tokens: enough to read before it if most slots write
READY = 4  # requests that are read ahead of a free slot
LATER = 64  # replies that wait to be read; older ones are forgotten
RECENT = 1024  # requests that the latencies are of
IN_TIME = ('boundary', 'length', 'stop')  # reasons of texts that are whole


class Scheduler:
  """See the module's docstring. It is used by one thread.

  Attributes:
    served: the model.
    slots, reader, store: where rows make tokens, texts are read, and states of
      their beginnings are.
    abandoned: set it to end all requests as they are.
    totals: 'prompt_tokens', those of them that were 'cached_tokens',
      'new_tokens'.
    first_token: seconds of the last requests.
  """

  def __init__(
    self,
    served: served_lib.Served,
    slots: slots_lib.Slots,
    reader: reading.Reader,
    store: prefixes.Store,
    read_seconds: float,
    intake: work.Intake,
  ) -> None:
    """Takes a model, where its rows are, and where requests come from."""
    self.served = served
    self.slots = slots
    self.reader = reader
    self.store = store
    self.abandoned = False
    self.totals: collections.Counter[str] = collections.Counter()
    self.first_token: collections.deque[float]
    self.first_token = collections.deque(maxlen=RECENT)
    self._read_seconds = read_seconds
    self._intake = intake
    self._current: reading.Reading | None = None
    self._ready: collections.deque[work.Job] = collections.deque()
    self._wanted: collections.deque[reading.Reading] = collections.deque()
    self._later: collections.deque[reading.Reading]
    self._later = collections.deque(maxlen=LATER)

  def _served(self, job):
    return self.served.of(job.options.adapter)

  @property
  def waiting(self) -> int:
    """How many requests are being read or wait for a slot."""
    return len(self._ready) + (self._current is not None)

  def step(self) -> bool:
    """Does what is next: some reading and one call that makes tokens.

    What fails, fails the requests of now, and not those that come.

    Returns:
      Whether there was anything to do.
    """
    try:
      return self._step()
    except Exception as error:  # whatever it is, later requests are served
      defects.log('a step of the engine', error)
      self.fail_all(error)
      return True

  def _step(self):
    call = self.slots.end()
    if call is not None and (self.slots.constrained or self._intake.reloading):
      self._deliver(call)  # what is next depends on these tokens
      call = None
    self._drop()
    self._swap()
    did_read = self._read()
    self._fill_slots()
    called = self.slots.begin(self.served.weights)
    if call is not None:
      self._deliver(call)  # while the device makes the next ones
    return did_read or called or call is not None

  # What ends before its time.

  def _drop(self):
    """Ends requests that were cancelled, are late, or are abandoned."""
    if self.abandoned:
      self._later.clear()
    for job in self._intake.live:
      reason = job.early_end() or ('closed' if self.abandoned else '')
      if not reason:
        continue
      self._forget(job)
      if job.done:  # and its text was being read for its state
        self._finish(job, None)
        continue
      for row in self._rows(job):
        self.slots.free(row)
        self._end(row, reason)
      while job.placed < job.options.n:
        self._end(job.next_row(self.served.tokenizer), reason)

  def _forget(self, job):
    """Removes a job from all that waits, is read, or waits for a slot."""
    self._intake.withdraw(job)
    if self._current is not None and self._current.job is job:
      self._current = None
    if job in self._ready:
      self._ready.remove(job)
    for each in [*self._wanted]:
      if each.job is job:
        self._wanted.remove(each)

  def _rows(self, job):
    """Returns a job's rows that have slots."""
    return [row for row in self.slots.rows if row and row.job is job]

  def _fail(self, job, error):
    """Fails one request."""
    self._forget(job)
    for row in self._rows(job):
      row.ended = True
      self.slots.free(row)
    self._intake.count('error')
    self._intake.leave(job)
    job.handle.finish(None, error)

  def fail_all(self, error: Exception) -> None:
    """Fails all requests, and begins with empty slots."""
    jobs = self._intake.live
    for job in jobs:
      self._fail(job, error)
    self._current = None
    self._later.clear()
    if jobs:
      self.slots.reset()

  # Reading.

  def _swap(self):
    """Swaps the parameters once no request needs the old ones."""
    if not self._intake.reloading or self._current is not None:
      return
    if self._ready or self._wanted or self.slots.used:
      return
    new, done = self._intake.take_reload()
    self._later.clear()
    self.store.clear()
    self.served = new
    done.set_result(None)

  def _choose_reading(self):
    """Chooses what to read next: who came first, then replies."""
    enough = max(READY, len(self.slots.rows) - self.slots.used)
    if self._current is not None or len(self._ready) >= enough:
      return
    if self._wanted:
      self._current = self._wanted.popleft()
    elif (job := self._intake.take()) is not None:
      self._begin(job)
    elif self._later:
      self._current = self._later.popleft()

  def _begin(self, job):
    try:
      served = self._served(job)
      current = self.reader.prompt(served, job, self._prompt_read)
    except errors.InputError as error:  # a state of the parameters before
      self._fail(job, error)
      return
    job.timing.begun = job.seconds()
    job.cached_tokens = current.skipped
    self.totals['prompt_tokens'] += len(job.ids)
    self.totals['cached_tokens'] += current.skipped
    self._current = current

  def _read(self):
    """Reads a chunk, or more while slots are free. Returns whether it did."""
    used = self.slots.used / len(self.slots.rows)
    share = 1 - used if used else IDLE
    end = time.monotonic() + self._read_seconds * share
    did_read = read = self._read_chunk()
    before = None
    while read and not read.job.done:  # a reply that is read again can wait
      if self.slots.used + len(self._ready) >= len(self.slots.rows):
        break
      latest = read.entry.logits_1xV
      # Unless a row waits, one chunk is read while the next is prepared.
      jax.block_until_ready(latest if used else before)
      before = latest
      read = time.monotonic() < end and self._read_chunk()
    return bool(did_read)

  def _read_chunk(self):
    """Reads what is next. Returns its Reading, or None."""
    self._choose_reading()
    current = self._current
    if current is None:
      return None
    enough, used = math.inf, self.slots.used
    if 2 * used > len(self.slots.rows):
      enough = SHARE * used * self.slots.next_steps
    if self.reader.advance(self.served.weights, current, enough):
      self._current = None
      current.done(current)
    return current

  def _prompt_read(self, current):
    job = current.job
    job.read, job.key = current.entry, current.key
    job.timing.read = job.seconds()
    if job.options.max_new_tokens:
      self._ready.append(job)
    else:
      self._end(job.next_row(self.served.tokenizer), 'length')

  def _fill_slots(self):
    """Gives free slots to completions whose prompt has been read."""
    while self._ready and self.slots.used < len(self.slots.rows):
      job = self._ready[0]
      try:
        self.slots.place(job.next_row(self.served.tokenizer))
      except errors.InputError as error:  # its constraint is too large
        self._fail(job, error)
        continue
      if job.placed == job.options.n:
        self._ready.popleft()

  # New tokens.

  def _deliver(self, call):
    """Gives the rows of a call their tokens."""
    for slot, row in enumerate(call.rows):
      if row is None or row.ended:
        continue
      try:
        self._give(row, call.of(slot, row.job.options.alternatives))
        if row.matcher is not None:
          self.slots.allow(row)
      except Exception as error:  # the other requests continue
        if not isinstance(error, errors.InputError):
          defects.log('a request', error)
        row.ended = True
        self._fail(row.job, error)
        continue
      if row.reason:
        self.slots.free(row)
        self._end(row, row.reason)

  def _give(self, row, made):
    tokens = row.records(*made)
    if not tokens:
      return
    timing = row.job.timing
    if timing.first_token is None:
      timing.first_token = row.job.seconds()
      self.first_token.append(timing.first_token)
    self.totals['new_tokens'] += len(tokens)
    row.job.handle.push(tokens)

  def _end(self, row, reason):
    """Ends a completion; with the last one, the request."""
    row.ended = True
    job = row.job
    job.completions[row.choice] = row.completion(reason)
    self._intake.count(reason)
    if not job.done:
      return
    job.timing.ended = job.seconds()
    if job.options.returns_state and reason in IN_TIME:
      ids = job.text_ids(0)
      self._wanted.append(
        self.reader.text(self._served(job), job, ids, self._state_read)
      )
    else:
      self._finish(job, None)
      self._remember(job)

  def _state_read(self, current):
    """The text of a request that wants its state has been read."""
    job = current.job
    given, ids = job.options.state, job.text_ids(0)
    ended = given is not None and given.ended
    if len(ids):
      ended = bool(ids[-1] == self.served.tokenizer.boundary)
    entry = current.entry
    self._finish(
      job,
      states.State(
        self._served(job).digest,
        current.key.hex(),
        len(ids) + (given.count if given else 0),
        ended,
        tuple(jax.tree.leaves(entry.state)),
        entry.logits_1xV,
      ),
    )

  def _finish(self, job, state):
    self._intake.leave(job)
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
    served = self._served(job)
    boundary = served.segment_end
    if boundary is None or not self.store.limit:
      return
    for choice, completion in enumerate(job.completions):
      if (
        completion.reason not in ('boundary', 'length') or not completion.tokens
      ):
        continue
      ids = job.text_ids(choice)
      if ids[-1] != boundary:
        ids = np.append(ids, np.int32(boundary))  # as the next turn frames it
      self._later.append(self.reader.text(served, job, ids, lambda _: None))
