"""The kernels of a compiled GPU program: registers, spills, shared memory.

XLA writes the kernels that it makes as PTX (--xla_dump_to), and the assembler
of the CUDA packages says what each takes of a multiprocessor:

    ptxas info : Compiling entry function 'fusion_2' for 'sm_90a'
    ... 0 bytes spill stores, 0 bytes spill loads
    ptxas info : Used 40 registers, ..., 1024 bytes smem

What a kernel asks for when it is launched is in XLA's list of launches:

    002: kCustomKernel ... fusion_2 grid: ... shared_memory: 512 bytes

Mosaic assembles its kernels itself and writes what its assembler says, and the
program that launches them.
"""

import concurrent.futures
import contextlib
import importlib.util
import os
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax.system import target

# Of the packages nvidia-cuda-nvcc-cu12 and nvidia-cuda-nvcc.
ASSEMBLERS = 'cuda_nvcc/bin/ptxas', 'cu13/bin/ptxas'
ENTRY = re.compile(
  r"Compiling entry function '(\S+)' for .*?(?=Compiling entry function|\Z)",
  re.DOTALL,
)
SPILLED = re.compile(r'(\d+) bytes spill (?:stores|loads)')
REGISTERS = re.compile(r'Used (\d+) registers')
SHARED = re.compile(r'(\d+) bytes smem')
LAUNCHED = re.compile(r'(\S+) grid: .* shared_memory: (\d+) bytes')
MOSAIC = 'MOSAIC_GPU_DUMP_TO'  # which it reads whenever it compiles
ASKED = re.compile(r'dynamic_shared_memory_size %c(\d+)_i32')


class Kernel(NamedTuple):
  """What a kernel takes.

  Attributes:
    registers: of a thread.
    spilled: bytes that a thread writes to memory and reads again, for want of
      registers.
    shared: bytes of shared memory of a block.
  """

  name: str
  registers: int
  spilled: int
  shared: int


@contextlib.contextmanager
def writing(folder: str | os.PathLike) -> Iterator[dict[str, str]]:
  """Within, compilers write what `read` reads; XLA's options are given."""
  mosaic, before = pathlib.Path(folder, 'mosaic'), os.environ.get(MOSAIC)
  mosaic.mkdir()
  os.environ[MOSAIC] = str(mosaic)
  try:
    # Since jax 0.11, PTX is written only of emitters that match.
    yield {'xla_dump_to': str(folder), 'xla_dump_emitter_re': '.*'}
  finally:
    del os.environ[MOSAIC]
    if before is not None:
      os.environ[MOSAIC] = before


def read(folder: str | os.PathLike) -> list[Kernel]:
  """Returns the kernels of programs that were compiled in `writing`.

  Raises:
    InputError: the assembler is missing.
  """
  assembler, gpu = _assembler(), target.used()
  assert gpu

  def assemble(path):
    return subprocess.run(
      [assembler, '-v', f'-arch={gpu.architecture}', path, '-o', os.devnull],
      capture_output=True,
      text=True,
      check=True,
    ).stderr

  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    paths = sorted(pathlib.Path(folder).glob('*.ptx'))
    said = pool.map(assemble, [x for x in paths if x.stat().st_size])
    launches = pathlib.Path(folder).glob('*.thunk_sequence.txt')
    listed = '\n'.join(path.read_text() for path in launches)
    return parse('\n'.join(said), listed) + _of_mosaic(pathlib.Path(folder))


def _of_mosaic(folder):
  kernels = []
  for path in sorted(folder.glob('mosaic/*.ptxas')):
    (kernel,) = parse(path.read_text(), '')
    passes = path.with_name(f'{path.stem}.mlir-passes.log').read_text()
    asked = int(ASKED.search(passes)[1])
    kernels.append(kernel._replace(shared=kernel.shared + asked))
  return kernels


def parse(text: str, launches: str) -> list[Kernel]:
  """Returns the kernels of the assembler's messages.

  Args:
    text: the messages.
    launches: XLA's list.
  """
  kernels, asked = [], dict(LAUNCHED.findall(launches))
  for match in ENTRY.finditer(text):
    spilled = max(map(int, SPILLED.findall(match[0])), default=0)
    shared = SHARED.search(match[0])
    kernels.append(
      Kernel(
        match[1],
        int(REGISTERS.search(match[0])[1]),
        spilled,
        int(shared[1] if shared else 0) + int(asked.get(match[1], 0)),
      )
    )
  return kernels


def _assembler():
  spec = importlib.util.find_spec('nvidia')
  for root in spec.submodule_search_locations if spec else ():
    for name in ASSEMBLERS:
      if (path := pathlib.Path(root, name)).exists():
        return path
  raise errors.InputError(
    f'ptxas is missing: {target.lacking() or "pip install nvidia-cuda-nvcc"}'
  )
