"""Predicts the time of a training step from the figures of devices.

    work      = max(sum_f flops_f / (efficiency peak_f), 2 state / bandwidth)
    sending_a = sum of bytes sent along axes a / slowest link that they span
    step      = work + sum_a sending_a           nothing overlaps
              = work + sum_a sending_a - hidden  as far as the schedule allows
    hidden    = sum_c min(sending_c, max(traffic_c / bandwidth,
                                         flops_c / (efficiency peak)))

f are the formats of matmuls. `efficiency` is the share of the peak that matmuls
reach, an assumption. Of the memory traffic only a floor counts: the state,
which a step reads and writes once; `efficiency` covers that of activations.
c are kinds of collectives; traffic_c and flops_c are what a device computes
while they travel (profiling/sent.py), sending_c counts only those beside which
it computes. A link is slow if devices of a group are in different nodes.
Latency and the traffic of others don't count.

The scaling efficiency is the time that one device without a memory limit would
take for the same batch, divided by devices x step.
"""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.parallel import axes
from rnn_jax.planning import program as program_lib
from rnn_jax.profiling import sent as sent_lib
from rnn_jax.system import devices as devices_lib

EFFICIENCY = 0.4  # assumed, of the peak of matmuls
USABLE = 0.9  # of the memory: what the runtime and fragments leave


@dataclasses.dataclass(frozen=True)
class Prediction:
  """Seconds of a step, and what they are made of.

  Attributes:
    work: computing with bubbles, or the floor of memory traffic.
    sending: {axes, as 'data+fsdp': seconds}.
    step: if nothing overlaps.
    overlapped: if all that travels during computation is hidden by it.
    tokens: per second, of all devices, by `step`; and by `overlapped`.
    scaling: efficiency, by `step`; and by `overlapped`.
    memory: bytes of a device.
    fits: whether they are within the usable share of its memory.
  """

  work: float
  sending: dict[str, float]
  step: float
  overlapped: float
  tokens: tuple[float, float]
  scaling: tuple[float, float]
  memory: int
  fits: bool


def predict(
  program: program_lib.Program,
  device: devices_lib.Device,
  baseline: float,
  efficiency: float = EFFICIENCY,
) -> Prediction:
  """Returns the Prediction of a program.

  Args:
    program: what a device does.
    device: its figures.
    baseline: `one_device_seconds` of the same batch.
    efficiency: share of the peak.

  Raises:
    InputError: the device's peak of a format is unknown.
  """
  working = work(program.flops, program.memory.arguments, device, efficiency)
  seconds = sending(program.sent, program.sizes, device)
  hidden = sum(
    min(
      part.beside / link(part.axes, program.sizes, device),
      meanwhile(part, program, device, efficiency),
    )
    for part in program.sent
  )
  others = sum(seconds.values()) - hidden
  step = working + hidden + others
  # What a CPU's program leaves open can hide no more than the work lasts.
  overlapped = max(working, hidden) + others
  both = step, overlapped
  return Prediction(
    work=working,
    sending=seconds,
    step=step,
    overlapped=overlapped,
    tokens=tuple(program.tokens / t for t in both),
    scaling=tuple(baseline / (program.devices * t) for t in both),
    memory=program.memory.total,
    fits=program.memory.total <= USABLE * device.memory,
  )


def meanwhile(
  part: sent_lib.Sent,
  program: program_lib.Program,
  device: devices_lib.Device,
  efficiency: float,
) -> float:
  """Returns the seconds that a device computes while something travels."""
  formats = program.flops or {'float32': 0}
  peak = device.peak(max(formats, key=formats.get))
  return max(
    part.traffic / device.memory_bandwidth, part.flops / (efficiency * peak)
  )


def work(
  flops: Mapping[str, float],
  state: float,
  device: devices_lib.Device,
  efficiency: float = EFFICIENCY,
) -> float:
  """Returns the seconds of computing; `state` is bytes, read and written."""
  computing = sum(n / device.peak(name) for name, n in flops.items())
  return max(computing / efficiency, 2 * state / device.memory_bandwidth)


def one_device_seconds(
  config: config_lib.Config,
  rows: int,
  device: devices_lib.Device,
  efficiency: float = EFFICIENCY,
) -> float:
  """Returns the seconds of `work` for the whole batch on one device."""
  flops, state = program_lib.of_one_device(config, rows)
  return work(flops, state, device, efficiency)


def sending(
  sent: Sequence[sent_lib.Sent],
  sizes: Sequence[int],
  device: devices_lib.Device,
) -> dict[str, float]:
  """Returns the seconds that a device sends, by the axes of the groups."""
  total = {}
  for part in sent:
    key = '+'.join(part.axes)
    seconds = part.bytes / link(part.axes, sizes, device)
    total[key] = total.get(key, 0.0) + seconds
  return total


def link(
  along: Sequence[str], sizes: Sequence[int], device: devices_lib.Device
) -> float:
  """Returns the bandwidth of the slowest link of a group along some axes."""
  ids = np.arange(math.prod(sizes)).reshape(sizes)
  cut = [axes.NAMES.index(name) for name in along]
  ids = np.moveaxis(ids, cut, range(-len(cut), 0)) if cut else ids[..., None]
  joined = math.prod(sizes[axis] for axis in cut)
  nodes = ids.reshape(-1, joined) // device.node
  apart = bool((nodes != nodes[:, :1]).any())
  return device.across if apart else device.inside
