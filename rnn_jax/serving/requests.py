"""What a client asks of an engine, and what it gets.

    handle = engine.submit(ids, Options(max_new_tokens=50))
    for token in handle:
      print(token.text, end='')
    reply = handle.result()

Options are checked on construction; what depends on the model is checked on
submission. A handle is for one reader and may be cancelled from any thread.
"""

import dataclasses
import queue
import threading
from collections.abc import Callable
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.inference import sampling
from rnn_jax.inference import text as text_lib
from rnn_jax.serving import constraint as constraint_lib
from rnn_jax.serving import defects
from rnn_jax.serving import states

MAX_COMPLETIONS = 128  # completions of one request


class QueueFullError(RuntimeError):
  """More requests wait than the engine's queue holds: try again later."""


class ClosedError(RuntimeError):
  """The engine takes no more requests."""


@dataclasses.dataclass(frozen=True, eq=False)
class Options(text_lib.Options):
  """How a prompt is continued, by which model, and from where.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  index: int = 0  # of the first completion among those of the seed
  n: int = 1  # completions, which share the read prompt
  alternatives: int = 0  # the most likely tokens to report at each step
  constraint: constraint_lib.Constraint | None = None
  state: states.State | None = None  # what the prompt continues
  returns_state: bool = False  # after the text, if it ends in its time
  deadline_seconds: float | None = None  # from submission on
  adapter: str = ''  # the name of one of the engine's; '': the model itself

  def __post_init__(self):
    # A state may be that of the prompt.
    self._check(0 if self.returns_state else 1)
    if not 0 <= self.index < 2**31:
      errors.refuse('index', self.index, 'give 0 or more')
    if not 1 <= self.n <= MAX_COMPLETIONS:
      errors.refuse('n', self.n, f'give 1 to {MAX_COMPLETIONS}')
    if not 0 <= self.alternatives <= sampling.ALTERNATIVES:
      errors.refuse(
        'alternatives', self.alternatives, f'give 0 to {sampling.ALTERNATIVES}'
      )
    if self.returns_state and self.n > 1:
      errors.refuse('returns_state', True, f'n={self.n}: give n=1')
    if self.deadline_seconds is not None and not self.deadline_seconds > 0:
      errors.refuse(
        'deadline_seconds', self.deadline_seconds, 'give a number above 0'
      )
    if self.constraint is not None:
      self._check_constrained()

  def _check_constrained(self):
    if self.min_new_tokens:
      errors.refuse(
        'min_new_tokens',
        self.min_new_tokens,
        'a constraint decides when a text may end: give 0',
      )
    if not self.stop_at_boundary:
      errors.refuse(
        'stop_at_boundary', False, 'a constrained text ends with it: give True'
      )


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
  """A new token.

  `text` is what became final with it, '' within a character or a possible stop
  string; the parts of a completion add up to its text.
  """

  choice: int  # the completion, 0 to n - 1
  id: int
  text: str
  logprob: float  # under the model, whatever the sampling
  alternatives: tuple[tuple[int, float], ...] = ()  # (id, logprob), falling


@dataclasses.dataclass
class Timing:
  """Seconds since the submission; None: it didn't happen."""

  begun: float | None = None  # the first chunk of the prompt was read
  read: float | None = None  # all of it was
  first_token: float | None = None
  ended: float | None = None


@dataclasses.dataclass(frozen=True)
class Reply:
  """All completions of a request.

  The reason of a completion that ended before its time is 'deadline',
  'cancelled' or 'closed'.
  """

  completions: tuple[text_lib.Completion, ...]
  prompt_tokens: int
  cached_tokens: int  # of the prompt, whose state was stored
  timing: Timing
  state: states.State | None = None

  @property
  def new_tokens(self) -> int:
    """Tokens of all completions."""
    return sum(len(completion.tokens) for completion in self.completions)


Listener = Callable[[tuple[Token, ...], bool], None]


class Handle:
  """A submitted request. Iterating it yields Tokens until all have come.

  Attributes:
    listener: called in the engine's thread; it must not block. It gets new
      tokens, and whether the request has ended; afterwards `result` returns at
      once.
  """

  def __init__(self, listener: Listener | None = None) -> None:
    self.cancelled = False
    self.listener = listener
    self._parts: queue.SimpleQueue[tuple[Token, ...] | None]
    self._parts = queue.SimpleQueue()
    self._done = threading.Event()
    self._reply: Reply | None = None
    self._error: BaseException | None = None

  def __iter__(self) -> Iterator[Token]:
    while (part := self._parts.get()) is not None:
      yield from part
    self._parts.put(None)
    if self._error is not None:
      raise self._error

  def result(self, timeout: float | None = None) -> Reply:
    """Waits for the end and returns the reply.

    Raises:
      TimeoutError: it hasn't ended after `timeout` seconds.
      Exception: what made the request fail.
    """
    if not self._done.wait(timeout):
      raise TimeoutError(f'timeout={timeout}: the request is still running')
    if self._error is not None:
      raise self._error
    assert self._reply is not None
    return self._reply

  @property
  def done(self) -> bool:
    """Whether it has ended."""
    return self._done.is_set()

  def cancel(self) -> None:
    """Ends the request after the engine's current step."""
    self.cancelled = True

  def push(self, tokens: tuple[Token, ...]) -> None:
    """Delivers new tokens; for the engine."""
    self._parts.put(tokens)
    self._notify(tokens, False)

  def finish(
    self, reply: Reply | None, error: BaseException | None = None
  ) -> None:
    """Ends the request; for the engine."""
    self._reply, self._error = reply, error
    self._done.set()
    self._parts.put(None)
    self._notify((), True)

  def _notify(self, tokens, ended):
    if self.listener is None:
      return
    try:
      self.listener(tokens, ended)
    except Exception as error:  # a client that has gone
      defects.log('the listener of a request', error)
