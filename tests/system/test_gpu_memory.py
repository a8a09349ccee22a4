"""The variables that set how much of a GPU's memory XLA uses."""

from rnn_jax.system import gpu_memory


def test_the_fraction_is_the_first_that_is_given(monkeypatch):
  for name in gpu_memory.FRACTIONS:
    monkeypatch.delenv(name, raising=False)
  assert gpu_memory.fraction() == 0.75
  monkeypatch.setenv('XLA_PYTHON_CLIENT_MEM_FRACTION', '.5')
  assert gpu_memory.fraction() == 0.5
  monkeypatch.setenv('XLA_CLIENT_MEM_FRACTION', '.9')
  assert gpu_memory.fraction() == 0.9


def test_the_compiler_plans_with_what_is_reserved():
  variables = gpu_memory.variables(0.95, {'XLA_FLAGS': '--theirs', 'HOME': '/'})
  percent = round(0.95 / 0.8 * 100)  # of the 80 % that it plans with otherwise
  assert variables == {
    'XLA_CLIENT_MEM_FRACTION': '0.95',
    'XLA_FLAGS': f'--xla_gpu_memory_limit_slop_factor={percent} --theirs',
  }
  assert gpu_memory.variables(0.76, {})['XLA_FLAGS'].endswith('=95')
