"""Reads a trace of jax.profiler: which operations ran when.

On a GPU the operations are the events of the device's streams. On a CPU they
are events of XLA's threads, and an operation that several threads share ends
with an event 'end: NAME', which has the number of its start. So an operation
lasts from its start to its end, and several can run at a time.
"""

import collections
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import jax

DEVICE = '/device:'
STREAM = 'Stream'
END = 'end: '
AT_ONCE = 'command_buffer'  # XLA's name for a graph of kernels


class Event(NamedTuple):
  """An operation that ran once, from `start` to `end` in nanoseconds."""

  name: str
  start: float
  end: float


class Sum(NamedTuple):
  """All runs of a name: nanoseconds from start to end, and how many."""

  name: str
  nanoseconds: float
  times: int


def newest(folder: pathlib.Path) -> pathlib.Path:
  """Returns the file of the latest trace in a folder."""
  (path,) = max((folder / 'plugins/profile').iterdir()).glob('*.xplane.pb')
  return path


def read(path: pathlib.Path, program: str) -> list[Event]:
  """Returns the operations of a trace, sorted by their start.

  Args:
    path: of the trace, *.xplane.pb.
    program: name of the program (the HLO module), as in 'jit__train_step'.
  """
  planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
  devices = [plane for plane in planes if plane.name.startswith(DEVICE)]
  streams = [
    line
    for plane in devices
    for line in plane.lines
    if line.name.startswith(STREAM)
  ]
  if streams:
    events = _of_streams(streams)
  else:
    lines = [line for plane in planes for line in plane.lines]
    events = _of_threads(lines, program)
  return sorted(events, key=lambda event: event.start)


def _of_streams(lines):
  """Returns what ran on a GPU.

  A kernel of no operation, or of many that are launched at once, keeps its own
  name; hlo.Program.of_kernel knows the operation.
  """
  events = []
  for line in lines:
    for event in line.events:
      operation = dict(event.stats).get('hlo_op', event.name)
      if operation.startswith(AT_ONCE):
        operation = event.name
      events.append(Event(operation, event.start_ns, event.end_ns))
  return events


def _of_threads(lines, program):
  begun, ends = {}, {}
  for line in lines:
    for event in line.events:
      stats = dict(event.stats)
      if stats.get('hlo_module') == program:
        key = stats.get('_p', (line.name, event.start_ns))
        begun[key] = Event(stats['hlo_op'], event.start_ns, event.end_ns)
      elif event.name.startswith(END):
        ends[stats.get('_c')] = event.start_ns
  return [
    event._replace(end=max(event.end, ends.get(key, event.end)))
    for key, event in begun.items()
  ]


def busy(events: Iterable[Event]) -> float:
  """Returns the nanoseconds in which at least one of the events ran."""
  total, until = 0.0, float('-inf')
  for event in sorted(events, key=lambda event: event.start):
    if event.end > until:
      total += event.end - max(event.start, until)
      until = event.end
  return total


def sums(named: Iterable[tuple[str, Event]]) -> list[Sum]:
  """Adds up (name, event) by name; the longest comes first."""
  time, times = collections.Counter(), collections.Counter()
  for name, event in named:
    time[name] += event.end - event.start
    times[name] += 1
  return [Sum(name, ns, times[name]) for name, ns in time.most_common()]
