"""The peak figures of devices, as their vendors state them.

Peaks are dense operations per second (a multiplication and an addition are two)
by the format of the factors; bandwidths are bytes per second that a device
reads and writes in its memory, or sends to others, in one direction.

    h100   NVIDIA H100 Tensor Core GPU data sheet, SXM: 67 teraflops of
           float32; with sparsity, which doubles them, 989 of TF32, 1,979 of
           bfloat16 and float16, 3,958 of int8 and FP8; NVLink 900 GB/s in both
           directions. NVIDIA DGX H100 data sheet: 8 GPUs, 8 ports of 400 Gb/s.
    h200   NVIDIA H200 Tensor Core GPU data sheet, SXM, and NVIDIA DGX H200 data
           sheet: as the H100.
    a100   NVIDIA A100 Tensor Core GPU data sheet, 80GB SXM: dense, 19.5
           teraflops of float32, 156 of TF32, 312 of bfloat16 and float16, 624
           of int8; NVLink 600 GB/s in both directions. NVIDIA DGX A100 data
           sheet (80 GB): 8 GPUs, 8 ports of 200 Gb/s.
    b200   NVIDIA HGX B200 data sheet: 75 teraflops of float32; with sparsity,
           which doubles them, 2,200 of TF32, 4,500 of bfloat16 and float16,
           9,000 of int8 and FP8; NVLink 1.8 TB/s in both directions. NVIDIA
           DGX B200 data sheet: 8 GPUs, 8 ports of 400 Gb/s.
    l4     NVIDIA L4 Tensor Core GPU data sheet: 30.3 teraflops of float32; with
           sparsity, which doubles them, 120 of TF32, 242 of bfloat16 and
           float16, 485 of int8 and FP8; PCIe 64 GB/s in both directions.
           Google Cloud, g2-standard-96: 8 GPUs, 100 Gb/s for all.
    v5e    Google Cloud, TPU v5e: 197 teraflops of bfloat16, 393 of int8; 16 GB,
           819 GB/s; 1,600 Gb/s between chips, over four links in a torus of two
           dimensions, of which a ring along one dimension has two; 256 chips
           per pod, which has 6.4 Tb/s to others. float32 at the highest
           precision is six passes of bfloat16.

Memories of GPUs and their bandwidths are those of system/target.py, whose
compiler they are planned with.

`cpu` is this machine, measured at once: a large matmul, a large copy. Its
virtual devices share its cores and memory equally and send by copying.
"""

import dataclasses
import math
import os
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.system import target

GIGA, TERA = 1e9, 1e12
SIZE = 1024  # of the matmul that is measured, squared
COPIED = 2**26  # numbers of the copy that is measured
REPEATS = 5


@dataclasses.dataclass(frozen=True)
class Device:
  """Figures of one device; see the module's docstring for units and sources.

  Attributes:
    name: as --target calls it.
    peaks: operations per second by format.
    memory: bytes.
    memory_bandwidth: bytes per second.
    inside: bytes per second that it sends within its node, or pod.
    across: bytes per second that it sends to another node, or pod.
    node: devices that the faster links join.
  """

  name: str
  peaks: dict[str, float]
  memory: float
  memory_bandwidth: float
  inside: float
  across: float
  node: int

  def peak(self, name: str) -> float:
    """Returns the operations per second of a format.

    Raises:
      InputError: its peak is unknown.
    """
    if name not in self.peaks:
      raise errors.InputError(
        f'--target={self.name}: no peak of {name} is known, and the step '
        f'multiplies in it: set train.precision to one of {[*self.peaks]}'
      )
    return self.peaks[name]


def _teraflops(**peaks):
  return {name: TERA * peak for name, peak in peaks.items()}


def _gpu(name, inside, across, **peaks):
  gpu = target.GPUS[name]
  return Device(
    name=name,
    peaks=_teraflops(**peaks),
    memory=gpu.memory,
    memory_bandwidth=gpu.bandwidth,
    inside=inside * GIGA,
    across=across * GIGA,
    node=target.NODE,
  )


HOPPER = {
  'float32': 67,
  'tf32': 494.5,
  'bfloat16': 989.5,
  'float16': 989.5,
  'int8': 1979,
  'float8_e4m3fn': 1979,
}
KNOWN = {
  'h100': _gpu('h100', 450, 50, **HOPPER),
  'h200': _gpu('h200', 450, 50, **HOPPER),
  'b200': _gpu(
    'b200',
    900,
    50,
    float32=75,
    tf32=1100,
    bfloat16=2250,
    float16=2250,
    int8=4500,
    float8_e4m3fn=4500,
  ),
  'a100': _gpu(
    'a100', 300, 25, float32=19.5, tf32=156, bfloat16=312, float16=312, int8=624
  ),
  'l4': _gpu(
    'l4',
    32,
    12.5 / target.NODE,
    float32=30.3,
    tf32=60,
    bfloat16=121,
    float16=121,
    int8=242.5,
    float8_e4m3fn=242.5,
  ),
  'v5e': Device(
    'v5e',
    _teraflops(float32=197 / 6, bfloat16=197, int8=393),
    16 * GIGA,
    0.819 * TERA,
    100 * GIGA,
    3.125 * GIGA,
    256,
  ),
}
NAMES = (*KNOWN, 'cpu')


def check(name: str) -> None:
  """Raises InputError unless `name` is one of NAMES."""
  if name not in NAMES:
    errors.refuse('--target', name, f'choose one of {", ".join(NAMES)}')


def find(name: str) -> Device:
  """Returns the Device of that name; 'cpu' is measured, in a second or two.

  Raises:
    InputError: as `check`.
  """
  check(name)
  return KNOWN[name] if name in KNOWN else measured(jax.device_count())


def measured(shares: int) -> Device:
  """Returns one of `shares` equal shares of this machine's CPU."""
  source = jax.jit(lambda: jnp.zeros(COPIED, jnp.float32))()
  add = jax.jit(lambda x: x + 1)
  seconds = _fastest(lambda: add(source))
  bandwidth = 2 * COPIED * 4 / seconds / shares
  memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  return Device(
    name='cpu',
    peaks={name: _matmul(name) / shares for name in ('float32', 'bfloat16')},
    memory=memory / shares,
    memory_bandwidth=bandwidth,
    inside=bandwidth / 2,  # a transfer reads and writes
    across=bandwidth / 2,
    node=shares,
  )


def _matmul(name):
  x = jax.jit(lambda: jnp.ones((SIZE, SIZE), jnp.dtype(name)))()
  multiply = jax.jit(
    lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32)
  )
  return 2 * SIZE**3 / _fastest(lambda: multiply(x))


def _fastest(function: Callable):
  jax.block_until_ready(function())
  best = math.inf
  for _ in range(REPEATS):
    began = time.perf_counter()
    jax.block_until_ready(function())
    best = min(best, time.perf_counter() - began)
  return best
