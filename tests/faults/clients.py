"""Requests to a server: hostile fields, cut-off bytes, clients that only wait.

One process of `launch.serve`, which may open 256 files, gets all attempts. Each
must end with a 200 or with a 4xx that names the field, while /healthz answers;
a good request gets the same text before, between and after them, and the log
has no traceback.
"""

import contextlib
import dataclasses
import json
import pathlib
import random
import socket
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import measure
from benchmarks.workloads.serving import server as server_lib
from tests.faults import bodies
from tests.faults import commands

FILES = 256  # that the server may open
MANY = 300  # connections: more than those files
TIMEOUT = 90.0  # seconds of an answer, with a compilation of its program
ALIVE = 5.0  # seconds of /healthz
BETWEEN = 20  # attempts from one good request to the next
LOGGED = 20_000  # bytes that one attempt may add to the log
MEMORY = 2**30  # resident bytes of the server
MUTATIONS = 60  # bodies with a few bytes changed
FLAGS = (
  '--slots=4', '--queue=4', '--max_new_tokens=24', '--prompt_tokens=2000',
  '--body_bytes=100000', '--model_name=tiny', '--request_seconds=10',
)  # fmt: skip
GOOD = {'prompt': 'the gate', 'max_tokens': 5, 'seed': 11, 'logprobs': 1}
STREAM = {
  'prompt': 'a', 'max_tokens': 24, 'stream': True, 'n': 4, 'logprobs': 20,
  'ignore_eos': True,
}  # fmt: skip
CHAT = {'task__name': 'dialogue', 'task__reply_tokens': 8}

Defect = commands.Defect


@dataclasses.dataclass(frozen=True)
class Attempt:
  """What a client does.

  Attributes:
    name: of it.
    act: of the port; returns a status and the body of an answer. 0: the server
      had no reason to answer.
    field: what the message of a 400 must name; '': nothing.
  """

  name: str
  act: Callable[[int], tuple[int, bytes]]
  field: str = ''


def requests(count: int) -> measure.Values:
  """Makes at most `count` attempts. Returns how many, and what went wrong."""
  with commands.started(1) as ((server,), shared):
    run = _train(shared, server)
    log = shared.folder / 'stderr'
    with server_lib.started(
      log,
      'launch.serve',
      f'--workdir={run}',
      '--port=0',
      f'--compilation_cache={shared.folder / "programs"}',
      *FLAGS,
      files=FILES,
    ) as served:
      tries = _Tries(served, log)
      chosen = commands.spread([*attempts()], count)
      defects = [tries.make(attempt, n) for n, attempt in enumerate(chosen)]
  return commands.summary([each.name for each in chosen], defects)


def _train(shared, server):
  """Returns the work folder of a small model of dialogues."""
  lines, run = shared.folder / 'lines', shared.folder / 'talks'
  lines.mkdir()
  for file in (shared.folder / 'text').iterdir():
    text = file.read_text().replace(' state ', '\n')
    (lines / file.name).write_text(f'a gate\n{text}')
  flags = shared.train(run, data__path=f'{lines}/*.txt', **CHAT)
  ended = server.run('train', flags, timeout=300)
  if ended.code:
    raise RuntimeError(f'the run that is served failed: {ended.err}')
  return run


class _Tries:
  """Attempts at one server, and what they do to it."""

  def __init__(self, server: server_lib.Server, log: pathlib.Path) -> None:
    self._server, self._log = server, log
    self._logged = 0
    self._expected = self._good()

  def make(self, attempt: Attempt, number: int) -> Defect:
    """Makes an attempt. Returns what is wrong, or None."""
    defect = self._defect(attempt, number)
    commands.log(attempt.name, defect)
    return defect

  def _defect(self, attempt, number):
    try:
      status, content = attempt.act(self._server.port)
    except TimeoutError:
      return 'hang', f'no answer within {TIMEOUT:g} s'
    except OSError as error:
      return 'crash', str(error)
    text = content.decode(errors='replace')
    for kind, wrong, words in self._checks(number):
      if wrong:
        return kind, words
    return judge(attempt, status, text)

  def _checks(self, number):
    """Yields (kind of defect, whether it is one, words), the gravest first."""
    new = self._log.read_text(errors='replace')[self._logged :]
    self._logged += len(new)
    failed = 'Traceback' in new or 'a defect' in new
    yield 'traceback', failed, new[-300:]
    yield 'misleading', len(new) > LOGGED, 'a flood in the log'
    yield 'hang', not is_alive(self._server.port), 'GET /healthz'
    resident = self._server.resources()['resident_bytes']
    yield 'memory', resident > MEMORY, f'{resident:,} bytes'
    changed = number % BETWEEN == 0 and self._good() != self._expected
    yield 'lost', changed, 'the good request got another answer'

  def _good(self):
    with server_lib.Client(self._server.port) as client:
      end = time.monotonic() + TIMEOUT
      while True:
        status, answer = client.ask('POST', '/v1/completions', GOOD)
        # What attempts have left in the queue may be in its way.
        if status != 429 or time.monotonic() > end:
          return status, answer.get('choices')
        time.sleep(0.05)


def judge(attempt: Attempt, status: int, text: str) -> Defect:
  """Returns what is wrong with an answer, or None."""
  if status and status != 200 and not 400 <= status < 500:
    return 'traceback', f'status {status}: {text}'
  if status == 400 and attempt.field not in text:
    return 'misleading', text
  return None


def is_alive(port: int) -> bool:
  """Whether /healthz answers in time, on a connection of its own."""
  try:
    status, _ = _exchange(port, _head('GET', '/healthz') + b'\r\n', ALIVE)
  except OSError:
    return False
  return status == 200


def attempts() -> Iterator[Attempt]:
  """Yields all attempts."""
  yield from _values()
  yield from _mutations()
  yield from _wholes()
  yield from _paths()
  yield from _headers()
  yield from _cuts()
  yield from _crowds()


def _values():
  """Each field of each route at each hostile value."""
  for path, form in bodies.FORMS.items():
    for field in form:
      for number, value in enumerate(bodies.JUNK):
        yield _posted(
          f'{path}: {field}, value {number}', path, form | {field: value}, field
        )
    for field in ('x', '', '__class__', 'a' * 999):
      yield _posted(f'{path}: a field {field[:9]!r}', path, form | {field: 1})
  message = {'role': 'user', 'content': 'a'}
  for field in ('role', 'content', 'name', 'refusal', 'tool_calls', 'x'):
    for number, value in enumerate(bodies.JUNK):
      said = {'messages': [message | {field: value}], 'max_tokens': 2}
      yield _posted(
        f'a message: {field}, value {number}',
        '/v1/chat/completions',
        said,
        'messages',
      )


def _posted(name, path, form, field=''):
  content = json.dumps(form)
  # These have their own answers whatever the fields are.
  if path in ('/v1/classify', '/admin/reload'):
    field = ''
  if 'NaN' in content or 'Infinity' in content:
    field = ''  # it is no JSON, whatever the field
  return _asked(name, _request(path, content.encode()), field)


def _asked(name, content, field=''):
  return Attempt(name, lambda port: _exchange(port, content), field)


def _mutations():
  """Bodies with a few bytes changed, or several fields."""
  rng = random.Random(0)
  for number in range(MUTATIONS):
    path, form = rng.choice([*bodies.FORMS.items()])
    content = bytearray(json.dumps(bodies.change(rng, form)).encode())
    for _ in range(number % 3):
      content[rng.randrange(len(content))] = rng.randrange(256)
    yield _asked(f'{path}: mutation {number}', _request(path, bytes(content)))


def _wholes():
  """Bodies that are wrong as a whole."""
  turns = {'messages': [{'role': 'user', 'content': 'a'}] * 4000}
  for name, content in (
    ('nothing', b''),
    ('a list', b'[]'),
    ('90,000 brackets', b'[' * 90_000),
    ('an object of 20,000 levels', b'{"prompt":' * 9_000),
    ('NaN', b'{"temperature": NaN}'),
    ('no UTF-8', b'\xff'),
    ('a number of 5,000 digits', b'{"seed": ' + b'9' * 5_000 + b'}'),
    ('a key twice', b'{"prompt": "a", "prompt": "b", "max_tokens": 1}'),
    ('200 kB', b'{"prompt": "' + b'a' * 200_000 + b'"}'),
    ('5,000 tokens', b'{"prompt": "' + b'a' * 5_000 + b'"}'),
    ('more prompts than may wait', b'{"prompt": ["a","a","a","a","a"]}'),
    ('128 prompts', json.dumps({'prompt': ['a'] * 128}).encode()),
    ('4,000 turns', json.dumps(turns).encode()),
  ):
    for path in ('/v1/completions', '/v1/chat/completions', '/v1/score'):
      yield _asked(f'{path}: {name}', _request(path, content))


def _paths():
  """Each method at each path, and bytes that are no request."""
  for path in bodies.PATHS:
    for method in bodies.METHODS:
      yield _asked(f'{method} {path[:40]}', _head(method, path) + b'\r\n')
  for number, content in enumerate(bodies.BYTES):
    yield _sent(f'bytes {number}', content)


def _sent(name, content):
  return Attempt(name, lambda port: _send(port, content))


def _send(port, content):
  """Sends bytes and ends the stream. Returns the status, 0: no answer."""
  with socket.create_connection(('127.0.0.1', port), TIMEOUT) as connection:
    try:
      connection.sendall(content)
      connection.shutdown(socket.SHUT_WR)
      return _status(connection.recv(4096)), b''
    except OSError:
      return 0, b''  # it had enough


def _headers():
  """Names of other hosts, and bodies of another type."""
  for host in ('localhost:1', 'evil', ''):
    for method in bodies.METHODS:
      head = _head(method, '/v1/models', host) + b'\r\n'
      yield _asked(f'{method} of host {host!r}', head)
  for path, form in bodies.FORMS.items():
    whole = _request(path, json.dumps(form).encode(), 'text/plain')
    yield _asked(f'{path}: plain text', whole)


def _cuts():
  """A request that is cut off, by an end of the stream or a reset."""
  whole = _request('/v1/completions', json.dumps(STREAM).encode())
  for stop in range(1, len(whole), 8):
    yield _sent(f'a request of {stop} bytes', whole[:stop])
  for read in (0, 1, 100, 5_000):
    yield Attempt(
      f'a client that leaves after {read} bytes',
      lambda port, read=read: _left(port, whole, read),
    )


def _left(port, content, read):
  with socket.create_connection(('127.0.0.1', port), TIMEOUT) as connection:
    connection.sendall(content)
    if read:
      connection.recv(read)
  return 0, b''


def _crowds():
  """More connections than the server may open files, all left open."""
  form = json.dumps(STREAM).encode()
  whole = _request('/v1/completions', form)
  health = _head('GET', '/healthz')
  for name, content in (
    ('nothing', b''),
    ('a byte', b'G'),
    ('half a head', health),
    ('a head without its end', health + b'X: ' + b'a' * 5_000),
    ('a head and no body', whole[: -len(form)]),
    ('half a body', whole[:-10]),
    ('a whole request', health + b'\r\n'),
    ('a request and half of another', health + b'\r\n' + health),
    ('a body that nobody reads', health + b'Content-Length: 99\r\n\r\na'),
    ('rubbish', b'\x16\x03\x01\x02\x00' + bytes(40)),
  ):
    for count in (40, MANY):
      yield Attempt(
        f'{count} connections with {name}',
        lambda port, c=content, count=count: _crowd(port, c, count),
      )
  yield Attempt(
    '60 streams that nobody reads', lambda port: _crowd(port, whole, 60)
  )


def _crowd(port, content, count):
  """Returns the answer of a good client among many that stay."""
  with contextlib.ExitStack() as stack:
    for _ in range(count):
      connection = socket.create_connection(('127.0.0.1', port), TIMEOUT)
      stack.enter_context(connection)
      with contextlib.suppress(ConnectionError):
        connection.sendall(content)
    if not is_alive(port):
      raise TimeoutError
    return _exchange(port, _head('GET', '/v1/models') + b'\r\n')


def _head(method: str, path: str, host: str = '127.0.0.1') -> bytes:
  """The head of a request without its end."""
  return f'{method} {path} HTTP/1.1\r\nHost: {host}\r\n'.encode()


def _request(path: str, content: bytes, kind='application/json') -> bytes:
  head = _head('POST', path).decode() + f'Content-Type: {kind}\r\n'
  return f'{head}Content-Length: {len(content)}\r\n\r\n'.encode() + content


def _exchange(
  port: int, content: bytes, seconds: float = TIMEOUT
) -> tuple[int, bytes]:
  """Sends a request and ends the stream. Returns the status and the body.

  Raises:
    OSError: the server is gone, or TimeoutError.
  """
  parts: list[Any] = []
  with socket.create_connection(('127.0.0.1', port), seconds) as connection:
    with contextlib.suppress(ConnectionError):  # it has read enough
      connection.sendall(content)
    with contextlib.suppress(ConnectionError):
      head = b''
      while part := connection.recv(2**16):
        parts.append(part)
        head = head or _split(b''.join(parts))
        if content.startswith(b'HEAD') or _is_whole(head, b''.join(parts)):
          break
  answer = b''.join(parts)
  return _status(answer), answer[len(_split(answer)) :]


def _status(answer):
  words = answer.split(b' ', 2)
  return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _split(answer):
  """Returns the head of an answer, b'' before it is whole."""
  end = answer.find(b'\r\n\r\n')
  return answer[: end + 4] if end >= 0 else b''


def _is_whole(head, answer):
  """Whether an answer is there to its end."""
  if not head:
    return False
  for line in head.lower().split(b'\r\n'):
    name, _, value = line.partition(b':')
    if name == b'content-length':
      return len(answer) >= len(head) + int(value)
  return answer.endswith(b'0\r\n\r\n')
