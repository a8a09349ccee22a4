"""Preparation on a runner: the same files as a single process writes."""

import dataclasses
import os
import pathlib
import sys
import types

import pytest

from rnn_jax import errors
from rnn_jax.data.preparation import beam
from rnn_jax.data.preparation import inputs
from rnn_jax.data.preparation import prepare
from rnn_jax.data.preparation import requests
from rnn_jax.data.preparation import schema
from rnn_jax.data.preparation import writer
from tests.support import eager_beam

# Beam's runner in this process: DirectRunner would first download Prism.
RUNNER = 'FnApiRunner'


@pytest.fixture(
  name='runner',
  params=('eager', pytest.param('beam', marks=pytest.mark.beam)),
)
def _runner(request, monkeypatch):
  """Beam itself where it is installed, and a substitute everywhere."""
  if request.param == 'eager':
    for name, module in eager_beam.modules().items():
      monkeypatch.setitem(sys.modules, name, module)
  return RUNNER


@pytest.fixture(name='request_')
def _request(tmp_path):
  """Three tables: what a column is, and the classes, follow from all of them.

  Column `part` is float by the second table, `code` is text by the third one,
  which repeats a row of the first one.
  """
  tables = (
    [f'one {n} {"x" * n},a,{n},{n},1' for n in range(12)],
    [f'two {n} and more,{"ab"[n % 2]},{n},0.5,2' for n in range(15)],
    ['one 3 xxx,b,3,3,1', *(f'three {n},c,7,1,00{n}' for n in range(4))],
  )
  for name, rows in zip(('0', '1', '2'), tables, strict=True):
    header = 'text,label,whole,part,code'
    (tmp_path / f'{name}.csv').write_text('\n'.join([header, *rows]))
  paths = tuple(f'{tmp_path}/{n}.csv' for n in range(3))
  splits = 'train', 'train', 'test'
  named = tuple(f'{s}={path}' for s, path in zip(splits, paths, strict=True))
  return requests.Request('toy', str(tmp_path / 'single'), named)


def changed(request, **values):
  return dataclasses.replace(request, **values)


def content(folder):
  return {
    path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()
  }


def refusal(request, *arguments):
  with pytest.raises(errors.InputError) as caught:
    prepare.prepare(request, lambda rows, label: rows, *arguments)
  assert not os.path.exists(os.path.dirname(request.folder))
  return str(caught.value)


def test_all_files_are_those_of_a_single_process(
  runner, request_, tmp_path, monkeypatch
):
  monkeypatch.setattr(writer, 'SHARD', 5)
  prepare.prepare(request_)
  other = changed(request_, data_dir=str(tmp_path / 'other'))
  record, written = prepare.prepare(other, runner=runner)
  assert written and content(other.folder) == content(request_.folder)
  assert record['examples'] == {'train': 27, 'test': 5}
  assert record['classes'] == ['a', 'b', 'c']
  (twice,) = record['duplicates']
  assert (twice['first'], twice['second']) == ('train', 'test')
  names = [name for name in content(other.folder) if '-train.' in name]
  assert len(names) == 6
  assert not prepare.prepare(other)[1]  # whichever runner wrote it


def test_the_first_bad_row_in_order_is_the_error(runner, request_, tmp_path):
  for name in ('1', '2'):
    with open(tmp_path / f'{name}.csv', 'a', encoding='utf-8') as file:
      file.write('\nonly text\n')
  message = refusal(request_, runner)
  assert message.startswith(f'{tmp_path}/1.csv:17: 1 columns, and the header')
  assert message == refusal(request_)


@pytest.mark.parametrize('runner', ('eager',), indirect=True)
@pytest.mark.parametrize('seed', (0, 1))
def test_a_seed_divides_inputs_alike(runner, request_, seed, tmp_path):
  paths = tuple(path.partition('=')[2] for path in request_.inputs)
  single = changed(request_, inputs=paths, shares=(50, 30, 20), seed=seed)
  prepare.prepare(single)
  other = changed(single, data_dir=str(tmp_path / 'other'))
  prepare.prepare(other, runner=runner)
  assert content(other.folder) == content(single.folder)


@pytest.mark.parametrize('runner', ('eager',), indirect=True)
@pytest.mark.parametrize(
  'changes',
  (
    {'duplicates': 'refuse'},
    {'shares': (80, 10, 10)},
    {'classes': ('a', 'b')},
    {'label': 'nothing'},
  ),
  ids=str,
)
def test_what_a_single_process_refuses_is_refused(runner, request_, changes):
  request = changed(request_, **changes)
  assert refusal(request, runner) == refusal(request)


def test_an_input_that_a_worker_cannot_see_is_named(request_):
  lost = inputs.Input('/mnt/away.csv', 'train', 'csv')
  empty = schema.Schema({}, '', (), False)
  ((_, (place, error)),) = beam._check((3, lost), request_, empty)
  assert place == (3, 0)
  assert str(error) == (
    '/mnt/away.csv: No such file or directory: every worker must see the '
    'inputs, by the same path'
  )


def test_without_the_extra_one_line_says_what_to_install(request_, monkeypatch):
  monkeypatch.setitem(sys.modules, 'apache_beam', None)
  assert refusal(request_, 'FlinkRunner') == (
    "--runner='FlinkRunner': it needs the package apache-beam: pip install "
    "'rnn_jax[beam]'"
  )


def test_options_without_a_runner_are_refused(request_):
  message = refusal(request_, prepare.SINGLE_PROCESS, '--parallelism=2')
  assert message.startswith("--runner_options='--parallelism=2': these are")


@pytest.mark.beam
@pytest.mark.parametrize(
  ('runner', 'options', 'message'),
  (
    ('NoRunner', '', 'Unexpected pipeline runner: NoRunner'),
    (RUNNER, '--direct_num_workers=many', 'invalid int value'),
    ('DataflowRunner', '', 'Missing required option: project.'),
    (
      'PortableRunner',
      '--job_endpoint=localhost:1 --job_server_timeout=1',
      'FutureTimeoutError',
    ),
  ),
)
def test_what_beam_refuses_is_one_line(runner, options, message, request_):
  refused = refusal(request_, runner, options)
  assert refused.startswith(
    f'--runner={runner!r}, --runner_options={options!r}'
  )
  assert message in refused and '\n' not in refused


@pytest.mark.parametrize('runner', ('eager',), indirect=True)
@pytest.mark.parametrize(
  ('said', 'message'),
  (
    ('lost [Errno 28] No space left on device [while running x]', 'No space'),
    ('the server hung up', 'RuntimeError: the server hung up'),
    ('', 'the state is CANCELLED, without a result in'),
  ),
)
def test_a_job_that_fails_is_one_line(
  runner, said, message, request_, monkeypatch
):
  def run(self):
    if said:
      raise RuntimeError(said)
    return types.SimpleNamespace(wait_until_finish=lambda: 'CANCELLED')

  monkeypatch.setattr(eager_beam.Pipeline, 'run', run)
  monkeypatch.setattr(beam, '_build', lambda *_: None)
  refused = refusal(request_, runner)
  assert refused.startswith(f"--runner='{runner}', --runner_options=''")
  assert message in refused


@pytest.mark.parametrize('runner', ('eager',), indirect=True)
def test_a_defect_in_a_step_keeps_its_traceback(runner, request_, monkeypatch):
  def run(self):
    raise RuntimeError("KeyError [while running 'read and check']")

  monkeypatch.setattr(eager_beam.Pipeline, 'run', run)
  with pytest.raises(RuntimeError, match='KeyError'):
    prepare.prepare(request_, runner=runner)
