"""Real steps in a process that a limit of memory may end."""

import types

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import tokenizer
from rnn_jax.profiling import trial
from rnn_jax.training import memory
from rnn_jax.training import program_memory
from rnn_jax.training import step
from tests import tiny


def config(**changes):
  raw = tiny.raw_config('unused')
  raw.data.length = 64
  raw.model.width = 64
  raw.train.update(**changes)
  return config_lib.parse(raw)


@pytest.mark.slow
def test_steps_within_their_budget_and_beyond_it():
  steps = step.from_config(config(), tokenizer.Bytes())
  total = program_memory.of(steps.compile_train(512, 64)).total
  found = trial.run(config(), 512, memory.Budget(int(1.3 * total), 'x'))
  assert (found.rows, found.fits, found.error) == (512, True, '')
  assert 0.8 * total < found.peak_bytes < 1.3 * total
  found = trial.run(config(), 512, memory.Budget(total // 2, 'x'))
  assert not found.fits
  assert found.peak_bytes is None
  assert trial.ran_out(found.error) or 'killed' in found.error


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
def test_memory_that_ran_out_is_told_from_other_errors(line, expected):
  assert trial.ran_out(line) == expected
  ended = types.SimpleNamespace(returncode=1, stdout=f'first\n{line}\nlast')
  if expected:
    assert trial._read(8, ended, None) == trial.Trial(8, False, None, line)
  else:
    with pytest.raises(RuntimeError, match='steps of 8 rows failed'):
      trial._read(8, ended, None)


def test_a_budget_that_this_machine_has_not_is_refused():
  with pytest.raises(errors.InputError) as raised:
    trial.check(memory.gib(1e6, '--memory_gib'))
  message = str(raised.value)
  assert message.startswith('--memory_gib=1000000.0: --confirm runs on this')
  assert 'the available memory is' in message


@pytest.mark.slow
def test_another_failure_is_no_lack_of_memory(monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', 'nonesuch')
  with pytest.raises(RuntimeError, match='(?s)8 rows failed.*nonesuch'):
    trial.run(config(), 8, memory.gib(0.5, 'x'))
