"""`launch.quantize`: what it writes is evaluated, and writes in turn."""

import json

import pytest

from rnn_jax.training import evaluate
from tests.support import launchers

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


@pytest.mark.parametrize('flags', ((), ('--activations',)))
def test_a_quantized_run_is_evaluated_and_writes(run, whole, flags, tmp_path):
  folder = tmp_path / 'packed'
  quantize = 'quantize', f'--workdir={run}', f'--output={folder}', *flags
  code, out, err = launchers.run(*quantize)
  assert code == 0, err
  assert 'times smaller' in out
  packed = perplexity(folder)
  assert packed == pytest.approx(whole, rel=0.01) and packed != whole
  config = json.loads((folder / 'config.json').read_text())
  assert config['train']['quantized'] == ('int8' if flags else '')
  if flags:
    return
  write = 'generate', f'--workdir={folder}', '--prompt=the', '--json'
  texts = []
  for held in ('float32', 'int8'):
    more = '--max_new_tokens=4', '--temperature=0', f'--weights={held}'
    code, out, err = launchers.run(*write, *more)
    assert code == 0, err
    texts.append(json.loads(out)['text'])
  assert texts[0] == texts[1] and texts[0]
  code, _, err = launchers.run(*quantize)
  assert code == 1 and 'exists already' in err
