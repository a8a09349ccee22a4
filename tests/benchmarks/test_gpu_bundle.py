"""What a machine with a GPU and no network is given."""

import os
import subprocess

import pytest

from benchmarks import gpu_bundle
from rnn_jax import errors


def test_wheels_are_the_tested_versions_and_what_they_need():
  named = dict(
    name.split('==') for name in gpu_bundle.wheels('3.12', {*gpu_bundle.THERE})
  )
  assert named['flax'] == '0.12.12'  # that of Python 3.12
  # Of flax and orbax-checkpoint.
  assert {'tensorstore', 'msgpack', 'etils', 'zipp', 'fla-core'} <= {*named}
  assert not {'jax', 'jaxlib', 'numpy', 'torch'} & {*named}
  fewer = gpu_bundle.wheels('3.12', {*gpu_bundle.THERE, 'tensorstore', 'Flax'})
  assert len(fewer) == len(named) - 2


def test_a_package_without_a_tested_version_is_named(monkeypatch):
  monkeypatch.setattr(gpu_bundle, 'PEERS', ('nobody',))
  with pytest.raises(errors.InputError, match='no version of nobody'):
    gpu_bundle.wheels('3.12', {*gpu_bundle.THERE})


def test_the_script_installs_and_goes_on_with_the_rows(tmp_path):
  """`python` only says what it is given."""
  bundle, out = tmp_path / 'bundle', tmp_path / 'out'
  (bundle / 'wheels').mkdir(parents=True)
  (bundle / 'wheels' / 'a.whl').touch()
  results = bundle / 'code' / 'benchmarks' / 'results'
  results.mkdir(parents=True)
  (results / 'gpu.jsonl').write_text('rows')
  (bundle / 'run.sh').write_text(gpu_bundle.RUN.format(commit='abc'))
  python = tmp_path / 'python'
  said = 'echo "$PWD $BENCHMARK_COMMIT $@"'
  python.write_text(f'#!/bin/sh\n{said}\nmkdir -p {bundle}/site.part\n')
  python.chmod(0o755)
  done = subprocess.run(
    ['sh', bundle / 'run.sh', out, '--minutes=8'],
    env={**os.environ, 'PYTHON': str(python)},
    capture_output=True,
    text=True,
    check=True,
  )
  install, measure = done.stdout.splitlines()
  assert '--no-index' in install and install.endswith(f'{bundle}/wheels/a.whl')
  assert measure == (
    f'{bundle}/code abc -m benchmarks.run --suite=gpu --resume '
    f'--results={out} --minutes=8'
  )
  assert (out / 'gpu.jsonl').read_text() == 'rows'
