"""How real steps end; tests/launch/test_find_batch_size.py runs some."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.profiling import trial
from rnn_jax.system import subprocesses
from rnn_jax.training.memory import batch_size
from tests.support import tiny


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


def test_another_failure_raises(monkeypatch):
  monkeypatch.setenv('PYTHONHOME', '/nonesuch')  # Python doesn't start
  config = config_lib.parse(tiny.raw_config('unused'))
  with pytest.raises(RuntimeError, match='(?s)8 rows failed.*nonesuch'):
    trial.run(config, 8, batch_size.gib(0.5, 'x'))
