"""The largest error of each form of the recurrence, against float64.

  python -m benchmarks.accuracy

Compares outputs, final state and all gradients with the loop of
tests/ops/gla_oracle.py, for each kind of gate, with resets, and for float32
and bfloat16 inputs. Errors are relative to the largest number of the oracle's
tensor. Adds rows to benchmarks/results/accuracy.jsonl and prints a table.
"""

from launch import command

LENGTHS = {'step': 1, 'scan': 130, 'associative': 130, 'chunked': 130}


def main(argv):
  del argv
  import jax
  import jax.numpy as jnp

  from benchmarks import rows
  from tests.ops import test_gla

  gates = list(test_gla.GATES)
  print('| implementation | inputs |', ' | '.join(gates), '|')
  print('|' + ' --- |' * (len(gates) + 2))
  for impl, length in LENGTHS.items():
    for dtype in (jnp.float32, jnp.bfloat16):
      with jax.transfer_guard('allow'):  # the tests hand over NumPy arrays
        found = _largest(test_gla, impl, length, dtype)
      name = jnp.dtype(dtype).name
      values = {'impl': impl, 'L': length, 'inputs': name, 'errors': found}
      rows.append('accuracy', values)
      cells = ' | '.join(f'{found[gate]:.1e}' for gate in gates)
      print(f'| {impl} | {name} | {cells} |', flush=True)


def _largest(test_gla, impl, length, dtype):
  """The largest error by gate, over decays, reads, starts and tensors."""
  largest = dict.fromkeys(test_gla.GATES, 0.0)
  for decay in ('key', 'head'):
    drawn = test_gla.draw(length, decay, dtype)
    for read in ('after', 'before'):
      errors = test_gla.errors(*drawn, impl=impl, read=read).values()
      by_row = [max(row) for row in zip(*errors, strict=True)]
      for row, error in enumerate(by_row):
        gate = list(test_gla.GATES)[row // len(test_gla.STARTS)]
        largest[gate] = max(largest[gate], float(error))
  return largest


if __name__ == '__main__':
  command.run(main)
