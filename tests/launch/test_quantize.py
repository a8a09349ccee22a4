"""`launch.quantize`: what it writes is evaluated, and writes in turn."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import launchers
from tests.support import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs')
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  raw.optimizer.learning_rate = 1e-2
  raw.evaluate.every = 0
  loop.train(config_lib.parse(raw), str(folder / 'run'))
  return folder / 'run'


def process(*arguments):
  return tiny.finish(tiny.launch(*arguments))


@pytest.mark.parametrize('flags', ((), ('--activations',)))
def test_a_quantized_run_is_evaluated_and_writes(run, flags, tmp_path):
  folder = tmp_path / 'packed'
  quantize = 'quantize', f'--workdir={run}', f'--output={folder}', *flags
  # One of the two as a process, as a user types it.
  launch = launchers.run if flags else process
  code, out, err = launch(*quantize)
  assert code == 0, err
  assert 'times smaller' in out
  whole, packed = (
    evaluate.evaluate_run(evaluate.Run.open(str(where)), 'test')['perplexity']
    for where in (run, folder)
  )
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
