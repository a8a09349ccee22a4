"""`launch.serve` under load: its start, its rate, and a long soak."""

import collections
import itertools
import json
import math
import pathlib
import random
import tempfile
import threading
import time
from concurrent import futures

from benchmarks.harness import measure
from benchmarks.workloads.serving import model as model_lib
from benchmarks.workloads.serving import server as server_lib
from rnn_jax.inference import generate
from rnn_jax.runs import bundle as bundle_lib

PATH = '/v1/completions'
KNOWN = 64  # requests whose answers are known
STORED = 4 * 2**20  # bytes of states: full long before the first tenth
SETTLE = 1.0  # seconds, for closed connections
MALFORMED = (
  b'{',
  b'[1]',
  b'{"prompt": "a", "max_tokens": -1}',
  b'{"prompt": "a", "max_tokens": 1e30}',
  b'{"prompt": "a", "temperature": "hot"}',
  b'{"prompt": "a", "temperature": NaN}',
  b'{"prompt": "a", "n": 0}',
  b'{"prompt": [900, 1]}',
  b'{"prompt": {"a": 1}}',
  b'{"prompt": "a", "colour": 1}',
  b'{"prompt": "a", "tools": [{}]}',
  b'{"prompt": "\xff"}',
  b'{"prompt": "a", "state": "state-0"}',
  b'{"prompt": "a", "stop": [1]}',
)


def _write(folder, overrides):
  """Writes the run. Returns what a row says of its model."""
  bundle = model_lib.make(overrides)
  bundle_lib.write(bundle, folder)
  return model_lib.facts(generate.Generator.from_bundle(bundle))


def start_to_ready(
  repeats: int, overrides: model_lib.Overrides = None
) -> measure.Values:
  """Seconds from the start of the process to its line that it is ready.

  The first start compiles; the others find the programs that it kept.
  """
  with tempfile.TemporaryDirectory() as name:
    run = pathlib.Path(name, 'run')
    facts = _write(run, overrides)
    seconds = []
    for _ in range(repeats + 1):
      with server_lib.serving(run, pathlib.Path(name, 'programs')) as server:
        seconds.append(server.seconds)
  return facts | measure.summarize(seconds[1:]) | {'cold_seconds': seconds[0]}


def rate(
  repeats: int,
  clients: int,
  requests: int = 8,
  prompt: int = 64,
  new_tokens: int = 128,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """Seconds of `clients` that ask one request after the other, 64 slots.

  Args:
    repeats: rounds.
    clients: at a time, each with a connection of its own.
    requests: of each client in a round.
    prompt: tokens that are read for a request; each prompt is new.
    new_tokens: of an answer.
    overrides: keys of the model's config.
  """
  with tempfile.TemporaryDirectory() as name:
    run = pathlib.Path(name, 'run')
    facts = _write(run, overrides)
    with server_lib.serving(
      run, pathlib.Path(name, 'programs'), '--slots=64'
    ) as server:
      load = Load(clients, requests, prompt, new_tokens)
      values = measure.repeat(lambda: load.send(server.port), repeats)
  return (
    facts
    | values
    | {
      'clients': clients,
      'tokens_per_second': load.tokens / values['median'],
    }
  )


class Load:
  """Clients that ask one request after the other, each prompt a new one.

  Attributes:
    tokens: new ones of a round.
  """

  def __init__(
    self, clients: int, requests: int, prompt: int, new_tokens: int, **fields
  ) -> None:
    """Takes the sizes of a round, see `rate`, and more fields of requests."""
    self.tokens = clients * requests * new_tokens
    self._clients, self._requests = clients, requests
    self._prompt, self._new_tokens = prompt, new_tokens
    self._fields = fields
    self._seeds = itertools.count()

  def send(self, port: int) -> None:
    """Sends a round and waits for all answers.

    Raises:
      RuntimeError: one isn't whole.
    """
    with futures.ThreadPoolExecutor(self._clients) as pool:
      [*pool.map(self._ask, [port] * self._clients)]

  def _ask(self, port):
    with server_lib.Client(port) as client:
      for _ in range(self._requests):
        seed = next(self._seeds)
        rng = random.Random(seed)
        form = _form(rng, self._prompt, self._new_tokens, seed) | self._fields
        _check(*client.ask('POST', PATH, form), self._new_tokens)


def _form(rng, prompt, new_tokens, seed):
  return {
    'prompt': [rng.randrange(256) for _ in range(prompt)],
    'max_tokens': new_tokens,
    'seed': seed,
    'ignore_eos': True,
    'continues': True,  # the tokens are all that is read
  }


def _check(status, answer, new_tokens):
  """Raises RuntimeError unless an answer is whole."""
  if status != 200 or answer['usage']['completion_tokens'] != new_tokens:
    raise RuntimeError(f'{status}: {answer}')


def soak(
  requests: float = math.inf,
  minutes: float = math.inf,
  clients: int = 32,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """What becomes of many requests, and of the server's process.

  They end with their number or with the time, whichever comes first.

  A tenth is malformed. Of another tenth the client leaves after the first
  token, long before the last one. A tenth has a new prompt, whose answer must
  be whole; the others are of KNOWN requests, whose answers were asked for one
  at a time before, and must be the same, log-probabilities included.

  The resident memory, threads and descriptors are those after a tenth of the
  requests or time and after all, each time without a request and without a
  connection.
  """
  with tempfile.TemporaryDirectory() as name:
    run = pathlib.Path(name, 'run')
    facts = _write(run, overrides)
    with server_lib.serving(
      run, pathlib.Path(name, 'programs'), f'--prefix_bytes={STORED}'
    ) as server:
      soaking = _Soak(server, clients)
      begin = time.monotonic()
      soaking.run(requests / 10, begin + 6 * minutes)
      first = soaking.resources()
      soaking.run(requests, begin + 60 * minutes)
      seconds = time.monotonic() - begin
      last = soaking.resources()
      status = server.idle()
  return facts | {
    'requests': soaking.sent,
    'seconds': seconds,
    'outcomes': dict(soaking.outcomes),
    'lost': soaking.sent - sum(soaking.outcomes.values()),
    'wrong': soaking.wrong,
    'faults': soaking.faults[:5],
    'tokens': soaking.tokens,
    'first': first,
    'last': last,
    'left_in_slots': status['active'] + status['queued'],
    'tracebacks': server.errors,
    'exit_code': server.code,
  }


class _Soak:
  """Requests to a server and what became of them.

  Attributes:
    sent: how many requests were begun.
    outcomes: how many were answered, refused, or left.
    wrong: answers that differ from the known one, or aren't what they must be.
    faults: what went wrong, in words.
    tokens: of the answers.
  """

  def __init__(self, server, clients):
    self._server, self._clients = server, clients
    self.sent = 0
    self.outcomes: collections.Counter[str] = collections.Counter()
    self.wrong = 0
    self.faults = []
    self.tokens = 0
    self._lock = threading.Lock()
    self._known = []
    with server_lib.Client(server.port) as client:
      for seed in range(KNOWN):
        rng = random.Random(seed)
        form = _form(rng, rng.randint(1, 300), rng.randint(1, 48), seed)
        form |= {'logprobs': 2, 'temperature': rng.choice((0, 0.8, 1))}
        status, answer = client.ask('POST', PATH, form)
        _check(status, answer, form['max_tokens'])
        self._known.append((form, answer['choices']))

  def run(self, last, end):
    """Sends requests until `last` are sent or the clock shows `end`."""

    def work(_):
      with server_lib.Client(self._server.port) as client:
        while (number := self._next(last, end)) is not None:
          self._send(client, number)

    with futures.ThreadPoolExecutor(self._clients) as pool:
      [*pool.map(work, range(self._clients))]

  def _next(self, last, end):
    """Returns the number of the next request; None: there is none."""
    with self._lock:
      if self.sent >= last or time.monotonic() >= end:
        return None
      self.sent += 1
      return self.sent - 1

  def resources(self):
    """The server's, once it is idle."""
    self._server.idle()
    time.sleep(SETTLE)
    return self._server.resources()

  def _send(self, client, number):
    try:
      kind, right, tokens = self._outcome(client, number)
    except Exception as error:  # noqa: BLE001, it is lost, and counted as that
      with self._lock:
        self.faults.append(f'{number}: {type(error).__name__}: {error}')
      client.close()
      return
    with self._lock:
      self.outcomes[kind] += 1
      self.tokens += tokens
      if not right:
        self.wrong += 1
        self.faults.append(f'{number}: {kind}')

  def _outcome(self, client, number):
    """(what it was, whether the answer is right, new tokens)."""
    rng = random.Random(10**6 + number)
    match number % 10:
      case 3:
        status, content = client.send('POST', PATH, rng.choice(MALFORMED))
        error = json.loads(content).get('error', {})
        return 'refused', 400 <= status < 500 and bool(error), 0
      case 6:
        form = _form(rng, rng.randint(1, 300), 4000, number)
        status, event = client.leave(PATH, form | {'stream': True})
        return 'left', status == 200 and event.startswith(b'data: {'), 1
      case 9:
        new = rng.randint(1, 48)
        form = _form(rng, rng.randint(1, 300), new, number)
        status, answer = client.ask('POST', PATH, form)
        made = answer.get('usage', {}).get('completion_tokens', 0)
        return 'answered', status == 200 and made == new, made
    form, choices = rng.choice(self._known)
    status, answer = client.ask('POST', PATH, form)
    right = status == 200 and answer['choices'] == choices
    return 'answered', right, form['max_tokens']
