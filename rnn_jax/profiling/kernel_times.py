"""How long the kernels of a GPU's training step take: predicted, not measured.

    limit   = max(bytes / bandwidth, sum_f products_f / peak_f,
                  arithmetic / instructions per second)
    seconds = limit / share + LAUNCH

for each kernel of the compiled program (costs.py), with the figures of the
device (system/devices.py). A float32 unit has one instruction per cycle, and
the peak counts two operations for it. `share` is how much of the limit kernels
of a kind reach. SHARES and LAUNCH are round numbers, near those that fit the
programs that ran on an H100 or H200 best: `python -m benchmarks.run
--suite=calibration` compiles these programs again, and says how far what is
predicted is from what was measured. ERROR has the median and the largest.

Kernels run one after another; no time passes between steps. What a conditional
chooses between counts in full.

    MFU   6 operations for each weight of a matrix and token
          / (seconds * peak of bfloat16)
    MBU   the kernels' bytes / (seconds * bandwidth)

Weights of a matrix are all parameters but the embedding's; recomputation and
the recurrence don't count (Chowdhery et al., "PaLM", 2022).
"""

import collections
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
from jax.extend import core

from rnn_jax.profiling import collectives
from rnn_jax.profiling import costs
from rnn_jax.profiling import hlo
from rnn_jax.profiling import pallas_costs
from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import devices as devices_lib
from rnn_jax.system import target

MATMUL, MEMORY, KERNEL = 'matmul', 'memory', 'kernel'
SHARES = {MATMUL: 0.7, MEMORY: 0.8, KERNEL: 0.4}
LAUNCH = 2e-6  # seconds between the ends of two kernels that compute nothing
ERROR = 0.15, 0.35  # of predictions of measured programs: median, largest
SHOWN = 12

COPIES = 'copies and casts'
OTHERS = 'gates and activations'
# The parts of a step by where a kernel was traced, the first that fits.
FILES = {
  'loss': ('ops/cross_entropy',),
  'optimizer': ('optax', 'training/', 'ops/blockwise', 'ops/stochastic'),
  'recurrence': (
    'ops/attention',
    'ops/delta',
    'ops/gla',
    'ops/linear_scan',
    'ops/rotary',
  ),
  'convolution': ('ops/causal_convolution',),
}
MODULES = {'loss': ('head',), 'embedding': ('embedding',)}
PARTS = (
  'matmuls',
  'recurrence',
  'norms',
  'convolution',
  OTHERS,
  'embedding',
  'loss',
  'optimizer',
  COPIES,
)


class Kernel(NamedTuple):
  """A kernel of a program, in all its runs.

  Attributes:
    part: one of PARTS.
    kind: MATMUL of a library or of XLA, KERNEL of Pallas, or MEMORY.
    module: as of an hlo.Operation.
    runs: how often it runs in a step.
    cost: of all runs.
    limit: seconds at the peak figures.
    seconds: predicted.
  """

  name: str
  part: str
  kind: str
  module: str
  runs: int
  cost: costs.Cost
  limit: float
  seconds: float


def of(
  program: hlo.Program,
  device: devices_lib.Device,
  made: costs.Kernels | None = None,
) -> list[Kernel]:
  """Returns the kernels of a program, the longest first.

  Args:
    program: as it was compiled for a GPU.
    device: the figures of that GPU.
    made: of pallas_costs.of, for the kernels of Pallas.

  Raises:
    InputError: the device's peak of a format is unknown.
  """
  found = []
  for name, one in program.operations.items():
    if one.opcode in hlo.CONTAINERS or collectives.is_one(one):
      continue
    cost = costs.of(program, name, made)
    if not cost.bytes:
      continue
    runs, kind = program.runs[name], _kind(one, cost)
    least = limit(cost, device)
    found.append(
      Kernel(
        name,
        _part(program, one, cost),
        kind,
        one.module,
        runs,
        cost.times(runs),
        runs * least,
        runs * predict(least, kind),
      )
    )
  return sorted(found, key=lambda kernel: (-kernel.seconds, kernel.name))


def of_step(
  workload: workload_lib.Workload,
  rows: int,
  program: hlo.Program,
  jaxpr: core.ClosedJaxpr,
) -> dict[str, Any]:
  """Returns the `summary` of a training step for target.using's GPU.

  Args:
    workload: what was compiled.
    rows: of its batch.
    program: as it was compiled.
    jaxpr: what it was compiled from.
  """
  config, device = workload.config, devices_lib.find(target.name())
  kernels = of(program, device, pallas_costs.of(jaxpr))
  tokens = rows * config.data.length // workload.programs.mesh.size
  params = workload.programs.states.like().params
  weights = matrix_weights(params, config.model.tied)
  return summary(kernels, device, tokens, weights)


def limit(cost: costs.Cost, device: devices_lib.Device) -> float:
  """Returns the seconds of a Cost at the peak figures of a device."""
  return max(
    cost.bytes / device.memory_bandwidth,
    sum(n / device.peak(name) for name, n in cost.products.items()),
    cost.arithmetic / (device.peak('float32') / 2),
  )


def predict(limit: float, kind: str) -> float:
  """Returns the predicted seconds of a run of a kernel."""
  return limit / SHARES[kind] + LAUNCH


def _kind(one, cost):
  if pallas_costs.is_one(one):
    return KERNEL
  return MATMUL if cost.products else MEMORY


def _part(program, one, cost):
  if costs.only_moves(program, one.name):
    return COPIES
  for part, files in FILES.items():
    if one.file.startswith(files):
      return part
  names = one.module.partition(' ')[0].split('/')
  for part, modules in MODULES.items():
    if {*modules} & {*names}:
      return part
  if cost.products:
    return 'matmuls'
  if any('norm' in name for name in names):
    return 'norms'
  return OTHERS


def summary(
  kernels: Sequence[Kernel],
  device: devices_lib.Device,
  tokens: int,
  weights: int,
) -> dict[str, Any]:
  """Returns what the kernels of a device take in a step, for JSON.

  Args:
    kernels: of `of`.
    device: its figures.
    tokens: that the device reads in a step.
    weights: of `matrix_weights`.

  Returns:
    'device', 'launches', 'bytes', 'products', 'limit_seconds', 'seconds',
    'tokens_per_second', 'mfu' and 'mbu', by the seconds predicted; 'error', the
    median and the largest of the model; by part and by kind of kernel 'parts'
    and 'kinds', of which each has launches, bytes, products and seconds;
    'slowest', the longest kernels.
  """
  seconds = sum(one.seconds for one in kernels)
  total = _added(kernels)
  return total | {
    'device': device.name,
    'tokens_per_second': tokens / seconds,
    'mfu': 6 * weights * tokens / (seconds * device.peak('bfloat16')),
    'mbu': total['bytes'] / (seconds * device.memory_bandwidth),
    'error': ERROR,
    'parts': by(kernels, 'part'),
    'kinds': by(kernels, 'kind'),
    'slowest': [
      {'name': one.name, 'part': one.part, 'module': one.module} | _added([one])
      for one in kernels[:SHOWN]
    ],
  }


def by(kernels: Sequence[Kernel], key: str) -> dict[str, dict[str, float]]:
  """Returns {part or kind: the sums of its kernels}, as in a `summary`."""
  groups = collections.defaultdict(list)
  for one in kernels:
    groups[getattr(one, key)].append(one)
  return {name: _added(some) for name, some in groups.items()}


def _added(kernels):
  return {
    'launches': sum(one.runs for one in kernels),
    'bytes': sum(one.cost.bytes for one in kernels),
    'products': sum(one.cost.flops for one in kernels),
    'limit_seconds': sum(one.limit for one in kernels),
    'seconds': sum(one.seconds for one in kernels),
  }


def matrix_weights(params: Any, tied: bool) -> int:
  """Returns the number of parameters without the embedding's.

  Args:
    params: a tree of arrays, or of their shapes.
    tied: whether the head multiplies by the embedding.
  """
  return sum(
    leaf.size
    for path, leaf in jax.tree.leaves_with_path(params)
    if tied or path[0].key != 'embedding'
  )
