"""Servers in processes of their own, and requests to them."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import measure
from benchmarks.harness import workers

READY = re.compile(r'is ready at http://127\.0\.0\.1:(\d+)/')
TIMEOUT = 120.0  # seconds of one request
END = 60.0  # seconds that a server may take to end
JSON = {'Content-Type': 'application/json'}


class Server:
  """A server that is ready.

  Attributes:
    port: where it listens, at 127.0.0.1.
    seconds: from the start of its process until it was ready.
    code: its exit code, once it has ended.
    errors: lines of its stderr that begin a traceback.
  """

  def __init__(self, process: subprocess.Popen, begin: float) -> None:
    self._process = process
    self.code: int | None = None
    self.errors = 0
    line = ''
    for line in process.stdout or ():
      if found := READY.search(line):
        self.seconds = time.monotonic() - begin
        self.port = int(found[1])
        return
    raise RuntimeError(f'the server ended before it was ready: {line}')

  def resources(self) -> measure.Values:
    """Resident bytes, threads and descriptors of its process."""
    folder = pathlib.Path('/proc', str(self._process.pid))
    pages = int((folder / 'statm').read_text().split()[1])
    return {
      'resident_bytes': pages * os.sysconf('SC_PAGE_SIZE'),
      'threads': len([*(folder / 'task').iterdir()]),
      'descriptors': len([*(folder / 'fd').iterdir()]),
    }

  def idle(self, seconds: float = 30.0) -> measure.Values:
    """Waits until no slot is in use. Returns its status then, or at last."""
    end = time.monotonic() + seconds
    while True:
      with Client(self.port) as client:
        _, status = client.ask('GET', '/v1/status')
      if not status['active'] and not status['queued']:
        return status
      if time.monotonic() > end:
        return status
      time.sleep(0.05)


@contextlib.contextmanager
def serving(
  workdir: str | os.PathLike, programs: str | os.PathLike, *flags: str
) -> Iterator[Server]:
  """A server of a run, with its compiled programs in a folder; see `started`.

  Raises:
    RuntimeError: it ended before it was ready.
  """
  with started(
    pathlib.Path(workdir, 'stderr'),
    'launch.serve',
    f'--workdir={workdir}',
    '--checkpoint=latest',
    '--port=0',
    f'--compilation_cache={programs}',
    *flags,
  ) as server:
    yield server


@contextlib.contextmanager
def started(
  log: pathlib.Path, module: str, *flags: str, files: int = 0
) -> Iterator[Server]:
  """A server that `python -m module` is, whose stderr goes to a file.

  At the end it gets a SIGTERM, and `code` and `errors` are set.

  Args:
    log: the file.
    module: of the server.
    *flags: of its command line.
    files: that it may open; 0: as many as this process.

  Raises:
    RuntimeError: it ended before it was ready.
  """
  begin = time.monotonic()
  with log.open('w') as stderr:
    process = subprocess.Popen(
      [*_limited(files), sys.executable, '-m', module, *flags],
      cwd=workers.ROOT,
      env={**os.environ, 'JAX_ENABLE_COMPILATION_CACHE': 'true'},
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=stderr,
      text=True,
    )
  server = None
  try:
    server = Server(process, begin)
    yield server
  finally:
    process.send_signal(signal.SIGTERM)
    try:
      code = process.wait(END)
    except subprocess.TimeoutExpired:
      process.kill()
      code = process.wait()
    if process.stdout is not None:
      process.stdout.close()
    if server is not None:
      server.code = code
      server.errors = log.read_text().count('Traceback')


def _limited(files):
  """The beginning of a command that may open so many files; 0: any."""
  return ['sh', '-c', f'ulimit -n {files}; exec "$@"', 'sh'] if files else []


class Client:
  """A connection that is kept from request to request; for one thread."""

  def __init__(self, port: int) -> None:
    self._connection = http.client.HTTPConnection(
      '127.0.0.1', port, timeout=TIMEOUT
    )

  def __enter__(self) -> 'Client':
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def close(self) -> None:
    """Closes the connection; the next request opens another one."""
    self._connection.close()

  def send(
    self, method: str, path: str, body: bytes = b''
  ) -> tuple[int, bytes]:
    """Returns the status and the body of an answer."""
    self._connection.request(method, path, body, JSON)
    answer = self._connection.getresponse()
    return answer.status, answer.read()

  def ask(self, method: str, path: str, form: Any = None) -> tuple[int, Any]:
    """The same of JSON."""
    body = b'' if form is None else json.dumps(form).encode()
    status, content = self.send(method, path, body)
    return status, json.loads(content)

  def leave(self, path: str, form: Any) -> tuple[int, bytes]:
    """Asks for a stream, reads its first event and closes the connection.

    Returns:
      The status and the event.
    """
    self._connection.request('POST', path, json.dumps(form).encode(), JSON)
    answer = self._connection.getresponse()
    event = answer.readline()
    answer.close()
    self.close()
    return answer.status, event
