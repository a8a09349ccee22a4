"""The reported memory of programs whose arrays are known."""

import jax
import jax.numpy as jnp

from rnn_jax.system import target

N = 4096  # floats, far above what XLA adds to align


def account(function, **options):
  like = jax.ShapeDtypeStruct((N,), jnp.float32)
  program = jax.jit(function, **options).lower(like, like).compile()
  return target.memory(program)


def test_arguments_and_results_count():
  memory = account(lambda x, y: (x + y, x * y))
  assert memory.arguments == 8 * N
  assert 8 * N <= memory.outputs <= 8 * N + 64  # and a table of two pointers
  assert memory.total == sum(memory)


def test_a_result_in_place_of_an_argument_counts_once():
  memory = account(lambda x, y: x + y, donate_argnums=0)
  assert (memory.arguments, memory.outputs) == (8 * N, 0)


def test_what_is_made_between_is_temporary():
  def outer(x, y):
    products = jax.lax.sort(x[:64, None] * y[None, :64])
    return products @ products.T @ x[:64]

  assert account(outer).temporaries >= 4 * 64 * 64
