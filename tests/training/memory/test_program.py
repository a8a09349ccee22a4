"""The compiler's account of programs whose arrays are known."""

import jax
import jax.numpy as jnp

from rnn_jax.training.memory import program as program_memory

N = 4096  # floats, far above what XLA adds to align


def account(function, **options):
  like = jax.ShapeDtypeStruct((N,), jnp.float32)
  program = jax.jit(function, **options).lower(like, like).compile()
  return program_memory.of(program)


def test_arguments_and_results_count():
  found = account(lambda x, y: (x + y, x * y))
  assert found.arguments == 8 * N
  assert 8 * N <= found.outputs <= 8 * N + 64  # and a table of two pointers
  assert found.total == sum(found)


def test_a_result_in_the_place_of_an_argument_counts_once():
  found = account(lambda x, y: x + y, donate_argnums=0)
  assert (found.arguments, found.outputs) == (8 * N, 0)


def test_what_is_made_between_is_temporary():
  def outer(x, y):
    products = jax.lax.sort(x[:64, None] * y[None, :64])
    return products @ products.T @ x[:64]

  assert account(outer).temporaries >= 4 * 64 * 64
