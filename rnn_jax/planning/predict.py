"""The time of a training step on devices of stated figures.

    work      = max(sum_f flops_f / (efficiency peak_f), 2 state / bandwidth)
    sending_a = sum of bytes sent along axes a / slowest link that they span
    step      = work + sum_a sending_a                    nothing overlaps
              = max(work, sending_rows) + sending_others  perfect overlap

f are the formats that are multiplied in. `efficiency` is the share of the peak
that matmuls reach, an assumption. Of the traffic of memory only a floor counts:
the state, which a step reads and writes once; what activations add is in
`efficiency`. `sending_rows` is what goes along data and fsdp alone: gradients'
sums and parameters, which later or earlier layers' work can hide; what goes
along the other axes is waited for. A link is slow if devices of a group lie in
different nodes. No latency is counted, and none of the traffic of others.

The scaling efficiency is the time that the same batch would take one device,
without its memory's limit, over devices x step.
"""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.parallel import axes
from rnn_jax.planning import devices as devices_lib
from rnn_jax.planning import program as program_lib

EFFICIENCY = 0.4  # assumed, of the peak of matmuls
USABLE = 0.9  # of the memory: what the runtime and fragments leave


@dataclasses.dataclass(frozen=True)
class Prediction:
  """Seconds of a step, and what they are made of.

  Attributes:
    work: computing, bubbles too, or the floor of memory's traffic.
    sending: {axes, as 'data+fsdp': seconds}.
    step: if nothing overlaps.
    overlapped: if all that goes along rows' axes alone overlaps with work.
    tokens: a second, of all devices, by `step`; and by `overlapped`.
    scaling: efficiency, by `step`; and by `overlapped`.
    memory: bytes of a device.
    fits: whether they are within the usable share of what it has.
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
  alone: float,
  efficiency: float = EFFICIENCY,
) -> Prediction:
  """Returns the Prediction of a program.

  Args:
    program: what a device does.
    device: its figures.
    alone: seconds of the same batch on one device, see `work`.
    efficiency: share of the peak.

  Raises:
    InputError: the device has no peak of a format.
  """
  working = work(program.flops, program.memory.arguments, device, efficiency)
  seconds = sending(program.sent, program.sizes, device)
  hidden = sum(seconds[key] for key in seconds if _is_rows(key))
  others = sum(seconds.values()) - hidden
  step = working + hidden + others
  overlapped = max(working, hidden) + others
  both = step, overlapped
  return Prediction(
    work=working,
    sending=seconds,
    step=step,
    overlapped=overlapped,
    tokens=tuple(program.tokens / t for t in both),
    scaling=tuple(alone / (program.devices * t) for t in both),
    memory=program.memory.total,
    fits=program.memory.total <= USABLE * device.memory,
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


def alone(
  config: config_lib.Config,
  rows: int,
  device: devices_lib.Device,
  efficiency: float = EFFICIENCY,
) -> float:
  """Returns the seconds of `work` of a config's whole batch on one device."""
  flops, state = program_lib.of_one_device(config, rows)
  return work(flops, state, device, efficiency)


def sending(
  sent: Sequence[program_lib.Sent],
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


def _is_rows(key):
  return set(key.split('+')) <= set(program_lib.SHARED)
