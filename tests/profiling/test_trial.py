"""Real steps in a process that a memory limit may end."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import subprocesses
from rnn_jax.data.text import tokenizer
from rnn_jax.profiling import trial
from rnn_jax.training import programs as programs_lib
from rnn_jax.training.memory import batch_size
from rnn_jax.training.memory import program as program_memory
from tests.support import tiny


def config(**changes):
  raw = tiny.raw_config('unused')
  raw.data.length = 64
  raw.model.width = 64
  raw.train.update(**changes)
  return config_lib.parse(raw)


@pytest.mark.slow
def test_steps_within_their_budget_and_beyond_it():
  programs = programs_lib.from_config(config(), tokenizer.Bytes())
  total = program_memory.of(programs.compile_train(512, 64)).total
  result = trial.run(config(), 512, batch_size.Budget(int(1.3 * total), 'x'))
  assert (result.rows, result.fits, result.error) == (512, True, '')
  assert 0.8 * total < result.peak_bytes < 1.3 * total
  result = trial.run(config(), 512, batch_size.Budget(total // 2, 'x'))
  assert not result.fits
  assert result.peak_bytes is None
  assert trial.ran_out(result.error) or 'killed' in result.error


@pytest.mark.parametrize(
  ('line', 'expected'),
  (
    ('RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes', True),
    ('std::bad_alloc', True),
    ('jax.errors.JaxRuntimeError: INTERNAL: YNNPACK operation failed', True),
    ('INTERNAL: YNNPACK operation failed: error', True),
    ('INTERNAL: YNNPACK operation failed: invalid parameter', False),
    ('INTERNAL: YNNPACK operation failed: unsupported parameter', False),
    ('INTERNAL: failed to compile', False),
  ),
)
def test_running_out_of_memory_differs_from_other_errors(line, expected):
  assert trial.ran_out(line) == expected
  ended = subprocesses.Result(1, ['first'], [line, 'last'], 0.0)
  if expected:
    assert trial._read(8, ended, None) == trial.Trial(8, False, None, line)
  else:
    with pytest.raises(RuntimeError, match='steps of 8 rows failed'):
      trial._read(8, ended, None)


def test_a_budget_above_this_machine_s_memory_is_refused():
  with pytest.raises(errors.InputError) as raised:
    trial.check(batch_size.gib(1e6, '--memory_gib'))
  message = str(raised.value)
  assert message.startswith('--memory_gib=1000000.0: --confirm runs on this')
  assert 'the available memory is' in message


@pytest.mark.slow
def test_another_failure_raises(monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', 'nonesuch')
  with pytest.raises(RuntimeError, match='(?s)8 rows failed.*nonesuch'):
    trial.run(config(), 8, batch_size.gib(0.5, 'x'))
