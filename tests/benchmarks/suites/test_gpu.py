"""The page of the GPU's suite, and that its configs exist."""

import pytest

from benchmarks import figures
from benchmarks.harness import rehearsal
from benchmarks.suites import gpu
from benchmarks.suites import targets
from benchmarks.workloads import configs
from benchmarks.workloads import published_model
from tests.benchmarks import made

ON_GPU = {'platform': 'gpu', 'device': 'NVIDIA H100 80GB HBM3'}
SHAPE = 'x'.join(map(str, gpu.SHAPES[0]))
PEER = 'flash-linear-attention, chunk_gla'
OTHERS = ['x'.join(map(str, shape)) for shape in gpu.SHAPES[1:]]
OF_DELTA = f'{gpu.DELTA}{SHAPE}'
DELTA_PEER = 'flash-linear-attention, chunk_gated_delta_rule'


def passes(name, both, forward, **others):
  part = {'median': forward, 'deviation': 0.0}
  return made.row(name, both, forward=part, **ON_GPU, **others)


@pytest.mark.parametrize('quick', (False, True))
def test_configs_have_the_keys_that_cases_change(quick):
  for case in gpu.cases(quick):
    if case.workload.startswith('workloads.published_model.'):
      published_model.config(case.parameters.get('overrides'), 2, 32)
    elif case.workload == 'suites.gpu.step':
      configs.parse(*case.parameters['config'])


def test_a_rehearsal_runs_the_same_cases():
  whole, small = gpu.cases(False), gpu.cases(True)
  assert [x.name for x in whole] == [x.name for x in small]
  ahead = {x.workload for x in whole} & {*gpu.AHEAD}
  assert ahead == {*gpu.AHEAD}


def test_the_page_begins_with_where_a_peer_is_faster(tmp_path, monkeypatch):
  config, rows = targets.CONFIGS['published']
  parameters = {'config': config, 'rows': rows}
  memory = {name: {'total': 2**20} for name in targets.TARGETS}
  monkeypatch.setattr(
    targets,
    'predicted',
    lambda given: [{'memory': memory}] if given == parameters else [],
  )
  text = made.section(
    tmp_path,
    'gpu',
    [
      passes(f'{SHAPE}: {gpu.KERNELS}', 4.0, 1.0, device_peak_bytes=2**30),
      passes(f'{SHAPE}: {PEER}', 2.0, 3.0),
      passes(f'{OF_DELTA}: {gpu.KERNELS}', 4.0, 1.0),
      passes(f'{OF_DELTA}: {DELTA_PEER}', 5.0, 0.5),
      made.failed(f'{SHAPE}: jax-linear-attention', 'ValueError: no', **ON_GPU),
      *(passes(f'{one}: {gpu.KERNELS}', 4.0, 1.0) for one in OTHERS),
      made.row(
        'step: published',
        0.5,
        parameters=parameters,
        length=512,
        rows_per_second=64.0,
        total=2**21,
        device_peak_bytes=2**22,
        **{k: v for k, v in ON_GPU.items() if k != 'parameters'},
      ),
    ],
  )
  assert f'faster, of 4 ratios: {PEER} at {SHAPE}, forward and' in text
  assert f'{DELTA_PEER} at {OF_DELTA}, forward (' in text
  assert f'| {SHAPE} | {PEER} | 3.00 s' in text
  assert 'ValueError: no' in text
  assert '| 64 | 4.00 MiB | 2.00 MiB | 1.00 MiB |' in text
  checks = sum(x.name.startswith('check: ') for x in gpu.cases(False))
  lacking = f'; check {checks} of {checks}; kernels'
  assert lacking in text and 'step 9 of 10' in text
  assert 'Not measured on this GPU: 1.3B 7 of 7; ' in text


def test_each_gpu_has_its_part_and_figures_are_of_the_one_with_most(tmp_path):
  one = {'device': 'NVIDIA H200', 'platform': 'gpu'}
  kernel = f'{SHAPE}: {gpu.KERNELS}'
  part = {'forward': made.row('', 1.0)}
  rows = [
    passes(kernel, 4.0, 1.0),
    passes(f'{SHAPE}: {PEER}', 2.0, 3.0),
    made.row(kernel, 8.0, **part, **one),
  ]
  text = made.section(tmp_path, 'gpu', rows)
  h100, h200 = (text.index(name) for name in ('NVIDIA H100', 'NVIDIA H200'))
  assert h100 < text.index('| 4.00 s') < h200 < text.index('| 8.00 s')
  figure = figures.Figure('gpu', kernel, 'median', 'seconds')
  source = figures.Source(tmp_path, tmp_path)
  assert figures.read(figure, source) == '4.00 s'


def test_a_rehearsal_has_a_page_until_something_is_measured(tmp_path):
  compiled = {
    'compile_seconds': 2.0,
    'kernels': 5,
    'registers': 168,
    'spilled': 0,
    'shared': 2**17,
    'argument_bytes': 2**20,
    'temp_bytes': 2**20,
  }
  kernel = f'{SHAPE}: {gpu.KERNELS}'
  rehearsed = [
    made.row(kernel, quick=True, rehearsal={rehearsal.TARGET: compiled}),
    made.failed('check: step', 'no', quick=True, rehearsal={}),
  ]
  text = made.section(tmp_path, 'gpu', rehearsed)
  assert '1 of 2 cases ran' in text and 'check: step: no' in text
  assert f'| {kernel} | 2.00 s | 5 | 168 | 0 | 128 KiB |' in text
  measured = passes(kernel, 4.0, 1.0)
  text = made.section(tmp_path, 'gpu', [*rehearsed, measured])
  assert (
    'Rehearsed' not in text and f'| {SHAPE} | {gpu.KERNELS} | 1.00 s' in text
  )
