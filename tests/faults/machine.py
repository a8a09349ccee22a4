"""What a launcher meets on another machine, as a request's 'machine' says.

stdin, stdout, stderr   'closed'; 'full', a disk without space; 'gone', a pipe
                        whose reader leaves once the request's text has come;
                        'unread', a pipe whose reader stops reading then
encoding                of its output, where a character may be an error
files                   the most descriptors it may have
folder                  the current one; 'deleted': one that no longer exists
fresh                   a new Python, which reads the environment again
second, gap             another signal, so many seconds after the first
"""

import fcntl
import io
import os
import pathlib
import resource
import sys
import tempfile

STREAMS = (('stdin', 0), ('stdout', 1), ('stderr', 2))
FILES = {'stdout': 'out', 'stderr': 'err'}  # the request's
PIPES = ('gone', 'unread')
CHUNK = 65_536
PAGE = 4096  # the smallest pipe: it is full soon


class _Reader:
  """Reads a pipe into the request's file until its text has come."""

  def __init__(self, stream, request):
    self.reader, self.writer = os.pipe()
    os.set_blocking(self.reader, False)
    self._leaves = request['machine'][stream] == 'gone'
    if not self._leaves:
      fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PAGE)
    self._path = pathlib.Path(request[FILES[stream]])
    request[f'{stream}_pipe'] = self.reader, self.writer

  def begin(self):
    os.close(self.writer)

  def read(self, enough):
    """Copies what has come; does what it is to do after the text."""
    if self.reader is None or (enough and not self._leaves):
      return
    try:
      content = os.read(self.reader, CHUNK)
    except BlockingIOError:
      content = b''
    with self._path.open('ab') as file:
      file.write(content)
    if enough:
      self.close()

  def close(self):
    if self.reader is not None:
      os.close(self.reader)
      self.reader = None


def open_readers(request):
  """Returns the readers of a request's pipes, opened before the fork."""
  return [
    _Reader(stream, request)
    for stream in FILES
    if request['machine'].get(stream) in PIPES
  ]


def apply(request):
  """Makes this process one on that machine; it may become a new Python."""
  machine = request['machine']
  if folder := machine.get('folder'):
    _enter(folder)
  for stream, number in STREAMS:
    _connect(stream, number, machine.get(stream), request)
  if encoding := machine.get('encoding'):
    for stream in (sys.stdout, sys.stderr):
      stream.reconfigure(encoding=encoding, errors='strict')
  if most := machine.get('files'):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
  if machine.get('fresh'):
    name = f'launch.{request["launcher"]}'
    root = pathlib.Path(__file__).parents[2]
    os.environ['PYTHONPATH'] = str(root)
    command = [sys.executable, '-m', name, *request['arguments']]
    os.execv(sys.executable, command)


def _enter(folder):
  if folder != 'deleted':
    os.chdir(folder)
    return
  with tempfile.TemporaryDirectory() as name:
    os.chdir(name)


def _connect(stream, number, state, request):
  """Gives a standard stream the state that the request asks for."""
  if state is None:
    return
  if state == 'closed':
    os.close(number)
    setattr(sys, stream, None)  # as Python starts then
    return
  if state == 'full':
    os.dup2(os.open('/dev/full', os.O_WRONLY), number)
  else:
    reader, writer = request[f'{stream}_pipe']
    os.dup2(writer, number)
    os.close(writer)
    os.close(reader)  # or it would be one that never leaves
  # Buffered as the file or the pipe would be in a new process.
  raw = io.FileIO(number, 'w', closefd=False)
  setattr(
    sys,
    stream,
    io.TextIOWrapper(
      io.BufferedWriter(raw), 'utf-8', line_buffering=number == 2
    ),
  )
