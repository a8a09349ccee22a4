"""`launch.quantize`: what it writes is evaluated, and writes in turn."""

import json
import shutil

import pytest

from rnn_jax.training import evaluate
from tests.support import jobs
from tests.support import launchers
from tests.support import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module', name='run')
def _run(trained):
  return trained[1]


@pytest.fixture(scope='module', name='whole')
def _whole(run):
  """The perplexity of the run that is quantized."""
  return perplexity(run)


def perplexity(folder):
  run = evaluate.Run.open(str(folder))
  return evaluate.evaluate_run(run, 'test')['perplexity']


def launch(name, *flags):
  """Returns what a command prints."""
  code, out, err = launchers.run(name, *flags)
  assert code == 0, err
  return out


def refusal(name, *flags):
  """Returns the line of a command that refuses."""
  code, _, err = launchers.run(name, *flags)
  assert code == 1
  return err


def text(folder, weights):
  """A greedy text of a run."""
  flags = f'--weights={weights}', '--max_new_tokens=4', '--temperature=0'
  given = f'--workdir={folder}', '--prompt=the', '--json'
  return json.loads(launch('generate', *given, *flags))['text']


@pytest.mark.parametrize('flags', ((), ('--activations',), ('--format=int4',)))
def test_a_quantized_run_is_evaluated_and_writes(run, whole, flags, tmp_path):
  folder = tmp_path / 'packed'
  quantize = 'quantize', f'--workdir={run}', f'--output={folder}', *flags
  assert 'times smaller' in launch(*quantize)
  packed = perplexity(folder)
  four = '--format=int4' in flags
  assert packed == pytest.approx(whole, rel=0.1 if four else 0.01)
  assert packed != whole
  config = json.loads((folder / 'config.json').read_text())
  eight = '--activations' in flags
  assert config['train']['quantized'] == ('int8' if eight else '')
  if flags:
    return
  assert text(folder, 'float32') == text(folder, 'int8') != ''
  assert 'exists already' in refusal(*quantize)
  alone = 'quantize', f'--workdir={run}', '--activations'
  assert 'give --output' in refusal(*alone)


def test_the_file_of_a_run_is_used_in_place_of_its_checkpoint(run, tmp_path):
  folder = tmp_path / 'run'
  shutil.copytree(run, folder)
  wanted = text(folder, 'int8')
  launch('quantize', f'--workdir={folder}')
  for state in (folder / 'checkpoints').glob('*/state'):
    shutil.rmtree(state)
  assert text(folder, 'int8') == wanted
  given = f'--workdir={folder}', '--text=the', '--json', '--weights=int8'
  assert json.loads(launch('score', *given))['token_count'] > 0


def test_a_second_start_compiles_nothing_that_the_first_one_kept(run, tmp_path):
  """Each is a process, which maps the file."""
  folder, programs = tmp_path / 'run', tmp_path / 'programs'
  shutil.copytree(run, folder)
  launch('quantize', f'--workdir={folder}', '--format=int4')
  given = f'--workdir={folder}', '--prompt=the', '--weights=int4', '--seed=3'
  every = {'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'}
  kept = []
  for _ in range(2):
    flags = *given, f'--compilation_cache={programs}'
    env = jobs.environment() | every
    code, out, err = tiny.finish(jobs.Process('generate', *flags, env=env))
    assert code == 0, err
    kept.append((out, sorted(path.name for path in programs.iterdir())))
  (text, first), (again, second) = kept
  assert text == again
  # Two threads compile; on a busy machine the first start may keep only one.
  names = {name.partition('-')[0] for name in first}
  assert first == [x for x in second if x.partition('-')[0] in names]
  assert 'jit_decode' in names
