"""A GPU that programs are compiled for, and that isn't attached.

    with target.using('h100'):         before jax finds its devices
      devices = target.devices(8)      for a mesh; nothing can run on them
      target.compiled(jitted.trace(...))

XLA's compiler for NVIDIA GPUs needs the CUDA packages, a description of the
GPU, and no driver. All that follows of a training step is then the real one:
its memory, its collectives and when they run, its kernels. Two choices are left
to XLA's model, as nothing can run: the tiles of matmuls, and which library
multiplies.

Figures are those of XLA's public descriptions of GPUs
(github.com/openxla/xla, xla/backends/gpu/target_config/specs), which a driver
reported. It has none of the L4, so that these come from elsewhere:

    l4     NVIDIA L4 Tensor Core GPU data sheet: 24 GB, 300 GB/s, 30.3
           teraflops of float32, which are 58 cores of 128 lanes at 2.04 GHz.
           NVIDIA Ada GPU architecture white paper: 48 MiB of L2 cache.
           CUDA C++ Programming Guide, compute capability 8.9: 1,536 threads
           and 100 KiB of shared memory per core, 99 KiB per block.

The number of cores of the l4 is derived, and its shared memory wasn't checked
against the guide itself.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import math
import re
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import jax

from rnn_jax import errors

NODE = 8  # GPUs of a host
PACKAGES = 'jax_cuda12_plugin', 'jax_cuda13_plugin'
KIB, MIB = 2**10, 2**20


@dataclasses.dataclass(frozen=True)
class Gpu:
  """What XLA's compiler asks about a GPU.

  Attributes:
    title: its name.
    capability: the compute capability.
    cores: its multiprocessors.
    lanes: float32 units of a core.
    threads: that a core holds.
    shared: bytes of shared memory of a core; a block can have 1 KiB less.
    cache: bytes of the L2 cache.
    gigahertz: the highest clock.
    bandwidth: bytes per second of the memory.
    memory: bytes that a driver reports.
  """

  title: str
  capability: tuple[int, int]
  cores: int
  lanes: int
  threads: int
  shared: int
  cache: int
  gigahertz: float
  bandwidth: float
  memory: int

  @property
  def architecture(self) -> str:
    """As ptxas names it; from Hopper on with its accelerated features."""
    major, minor = self.capability
    return f'sm_{major}{minor}{"a" if major >= 9 else ""}'


_H100 = Gpu(
  title='NVIDIA H100 80GB HBM3',
  capability=(9, 0),
  cores=132,
  lanes=128,
  threads=2048,
  shared=228 * KIB,
  cache=50 * MIB,
  gigahertz=1.98,
  bandwidth=3.35232e12,
  memory=84_942_979_072,
)
GPUS = {
  'h100': _H100,
  'h200': dataclasses.replace(
    _H100,
    title='NVIDIA H200 141GB HBM3e',
    bandwidth=4.8e12,
    memory=151_397_597_184,
  ),
  'b200': dataclasses.replace(
    _H100,
    title='NVIDIA B200',
    capability=(10, 0),
    cores=148,
    cache=132_644_864,
    gigahertz=1.965,
    bandwidth=7.67232e12,
    memory=191_514_411_008,
  ),
  'a100': Gpu(
    title='NVIDIA A100-SXM4-80GB',
    capability=(8, 0),
    cores=108,
    lanes=64,
    threads=2048,
    shared=164 * KIB,
    cache=40 * MIB,
    gigahertz=1.41,
    bandwidth=2.03904e12,
    memory=85_100_068_864,
  ),
  'l4': Gpu(
    title='NVIDIA L4',
    capability=(8, 9),
    cores=58,
    lanes=128,
    threads=1536,
    shared=100 * KIB,
    cache=48 * MIB,
    gigahertz=2.04,
    bandwidth=3e11,
    memory=24_000_000_000,
  ),
}
# A text proto, stream_executor.GpuTargetConfigProto.
DESCRIPTION = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {shared_optin}
  threads_per_core_limit: {threads}
  core_count: {cores}
  fpus_per_core: {lanes}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f}
  l2_cache_size: {cache}
  clock_rate_ghz: {gigahertz}
  device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{title}"
"""

_used: Gpu | None = None


def check(name: str, flag: str = '--target') -> None:
  """Checks that this process can compile for a GPU.

  Raises:
    InputError: the GPU is unknown, or XLA's compiler for it is absent.
  """
  if name not in GPUS:
    errors.refuse(flag, name, f'choose one of {", ".join(GPUS)}')
  if why := lacking():
    errors.refuse(flag, name, why)


def lacking() -> str:
  """Returns what to install to compile for GPUs; '' if nothing is missing."""
  if any(map(importlib.util.find_spec, PACKAGES)):
    return ''
  return (
    "XLA's compiler for NVIDIA GPUs isn't installed: pip install -e '.[cuda12]'"
    ' -c constraints.txt, or cuda13; it needs neither a GPU nor a driver'
  )


@contextlib.contextmanager
def using(name: str) -> Iterator[None]:
  """Within, programs of this process are those of a GPU; '' changes nothing.

  Raises:
    InputError: as `check`.
  """
  if not name:
    yield
    return
  check(name)
  # With another platform the plugin looks for a driver and a GPU as it loads.
  jax.config.update('jax_platforms', 'cpu')
  keeps = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
  before = _used, keeps
  _set(GPUS[name], False)  # such programs can't be read back
  try:
    with _described():
      yield
  finally:
    _set(*before)


def _described():
  """Within, Pallas finds the name of the GPU of `using` as it lowers."""
  # From jax 0.11 on Triton's lowering asks for it.
  if jax.version.__version_info__ < (0, 11):
    return contextlib.nullcontext()
  device = jax.sharding.AbstractDevice(
    device_kind=_used.title, num_cores=_used.cores, platform='gpu'
  )
  return jax.sharding.use_abstract_mesh(
    jax.sharding.AbstractMesh((), (), abstract_device=device)
  )


def _set(gpu, keep_programs):
  from jax.experimental.compilation_cache import compilation_cache

  global _used  # noqa: PLW0603
  _used = gpu
  jax.clear_caches()  # traces hold what was chosen for another platform
  jax.config.update('jax_enable_compilation_cache', keep_programs)
  compilation_cache.reset_cache()


def used() -> Gpu | None:
  """Returns the GPU of `using`; None: programs are for this machine."""
  return _used


def name() -> str:
  """Returns the name of the GPU of `using`, a key of GPUS."""
  return next(name for name, gpu in GPUS.items() if gpu is _used)


def platform() -> str:
  """Returns the platform that programs are compiled for: 'cpu', 'gpu', ..."""
  return 'gpu' if _used else jax.default_backend()


def capability() -> tuple[int, ...]:
  """Returns the compute capability of `device`; () isn't an NVIDIA GPU."""
  if _used:
    return _used.capability
  text = getattr(jax.devices()[0], 'compute_capability', '')
  return tuple(map(int, re.findall(r'\d+', str(text))))


def device() -> jax.Device:
  """Returns a device that programs are compiled for."""
  return devices(1)[0] if _used else jax.devices()[0]


def devices(count: int) -> list[jax.Device]:
  """Returns `count` devices of the GPU of `using`, to compile for.

  They are in hosts of NODE, or of the largest number that divides both.
  """
  assert _used
  return _devices(_used, count)


@functools.cache
def _devices(gpu, count):
  from jax._src import xla_bridge
  from jax.experimental import topologies

  jax.devices()  # loads plugins, once: this one may have lacked a driver
  if 'cuda' not in xla_bridge._topology_factories:
    xla_bridge.discover_pjrt_plugins()
  major, minor = gpu.capability
  own = math.gcd(count, NODE) if count > NODE else count
  return topologies.get_topology_desc(
    platform='cuda',
    topology_name=gpu.title,
    topology=f'1x{count // own}x{own}',
    target_config=DESCRIPTION.format(
      **dataclasses.asdict(gpu),
      shared_optin=gpu.shared - KIB,
      major=major,
      minor=minor,
    ),
  ).devices


class Memory(NamedTuple):
  """Bytes of each device that a program needs, as XLA reports them.

  Outputs that reuse an argument's buffer, such as a donated train state, are
  counted once, with the arguments.
  """

  arguments: int
  temporaries: int
  outputs: int

  @property
  def total(self) -> int:
    return sum(self)


def memory(program: jax.stages.Compiled) -> Memory:
  """Returns the memory that a compiled program needs.

  Raises:
    NotImplementedError: the backend doesn't report it.
  """
  analysis = program.memory_analysis()
  if analysis is None:
    raise NotImplementedError("this backend doesn't report a program's memory")
  return Memory(
    analysis.argument_size_in_bytes,
    analysis.temp_size_in_bytes,
    analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
  )


def compiled(
  traced: jax.stages.Traced, options: dict[str, Any] | None = None
) -> jax.stages.Compiled:
  """Compiles a traced function for the GPU of `using`, or this machine.

  Args:
    traced: its arguments are placed on `devices`.
    options: of XLA.
  """
  platforms = ('cuda',) if _used else None
  return traced.lower(lowering_platforms=platforms).compile(options)
