"""A GPU that isn't attached: its figures, and programs for it."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.parallel import axes
from rnn_jax.profiling import hlo
from rnn_jax.profiling import kernels
from rnn_jax.profiling import sent
from rnn_jax.system import devices
from rnn_jax.system import target
from tests.support import launchers
from tests.support import tiny

COUNT = 16
SIZES = (COUNT, *(1 for _ in axes.NAMES[1:]))


@pytest.mark.parametrize('name', target.GPUS)
def test_cores_and_clock_make_the_float32_peak_of_the_data_sheet(name):
  gpu = target.GPUS[name]
  peak = gpu.cores * gpu.lanes * 2 * gpu.gigahertz * 1e9
  assert peak == pytest.approx(devices.KNOWN[name].peaks['float32'], rel=0.01)


@pytest.mark.parametrize('command', ('find_batch_size', 'profile', 'plan'))
def test_what_to_install_is_one_line(command, tmp_path, monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  config = tiny.write_config(tmp_path / 'config.py', tiny.raw_config(''))
  flags = {
    'profile': [f'--workdir={tmp_path}/out'],
    'plan': ['--mesh=data=1'],
  }.get(command, [])
  code, out, err = launchers.run(
    command, f'--config={config}', '--target=h100', *flags
  )
  assert (code, out) == (1, '')
  (line,) = [x for x in err.splitlines() if x.startswith('error: ')]
  assert line.startswith("error: --target='h100': ")
  assert "pip install -e '.[cuda12]'" in line
  assert not (tmp_path / 'out').exists()


def test_an_unknown_gpu_is_refused():
  with pytest.raises(errors.InputError, match='h101.*h100, h200, b200, a100'):
    target.check('h101')


@pytest.fixture(name='program', scope='module')
def _program(tmp_path_factory):
  """A sum over 16 GPUs of a matmul's rows, and its kernels."""
  folder = tmp_path_factory.mktemp('ptx')
  with target.using('h100'):
    mesh = jax.sharding.Mesh(
      np.array(target.devices(COUNT)).reshape(SIZES), axes.NAMES
    )
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    x = jax.ShapeDtypeStruct((32 * COUNT, 256), jnp.float32, sharding=rows)
    w = jax.ShapeDtypeStruct((256, 64), jnp.float32, sharding=whole)
    run = jax.jit(lambda x, w: jnp.tanh(x @ w).sum(0), out_shardings=whole)
    with kernels.writing(folder) as options:
      compiled = target.compiled(run.trace(x, w), options)
    parts = sent.of(hlo.Program(compiled.as_text()), SIZES)
    return compiled, parts, kernels.read(folder)


@pytest.mark.cuda
def test_a_program_of_sixteen_gpus(program):
  compiled, parts, made = program
  memory = compiled.memory_analysis()
  assert memory.argument_size_in_bytes == 4 * 256 * (32 + 64)
  (part,) = parts
  # Of 64 sums in a ring, 2 (n - 1) / n leave each device.
  assert part[:4] == ('all-reduce', ('data',), 2 * 15 / 16 * 4 * 64, 1)
  assert made
  assert all(0 < one.registers <= 255 and not one.spilled for one in made)


@pytest.mark.cuda
def test_the_platform_is_the_gpus_only_within():
  with target.using('a100'):
    assert target.platform() == 'gpu'
    assert target.device().platform in ('gpu', 'cuda')
    assert {x.process_index for x in target.devices(12)} == {0, 1, 2}
  assert target.platform() == jax.default_backend()
  assert target.device() == jax.devices()[0]


def test_kernels_of_the_assemblers_messages():
  text = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'fusion_1' for 'sm_90a'
ptxas info    : Function properties for fusion_1
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Compiling entry function 'fusion_2' for 'sm_90a'
ptxas info    : Function properties for fusion_2
    96 bytes stack frame, 88 bytes spill stores, 92 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative \
stack size, 1024 bytes smem
"""
  launches = """001: kGemm [source | next=002 (1)] kGemm
002: kCustomKernel [source | sink] fusion_2 grid: [1, 1, 1] \
threads: [64, 1, 1]  shared_memory: 512 bytes
"""
  assert kernels.parse(text, launches) == [
    ('fusion_1', 32, 0, 0),
    ('fusion_2', 255, 92, 1024 + 512),
  ]
