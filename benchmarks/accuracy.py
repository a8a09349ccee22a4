"""The largest error of each form of the recurrence, against float64.

  python -m benchmarks.accuracy

Compares outputs, final state and all gradients with the loop of
rnn_jax/ops/gla_oracle.py, for each kind of gate, with resets, and for float32
and bfloat16 inputs. Errors are relative to the largest number of the oracle's
tensor. Adds rows to benchmarks/results/accuracy.jsonl and prints a table.
"""

from launch import command

LENGTHS = {'step': 1, 'scan': 130, 'associative': 130, 'chunked': 130}


def main(argv):
  del argv
  from benchmarks import rows
  from rnn_jax import selfcheck

  gates = list(selfcheck.GATES)
  print('| implementation | inputs |', ' | '.join(gates), '|')
  print('|' + ' --- |' * (len(gates) + 2))
  for impl, length in LENGTHS.items():
    for dtype in ('float32', 'bfloat16'):
      found = _largest(selfcheck, impl, length, dtype)
      values = {'impl': impl, 'L': length, 'inputs': dtype, 'errors': found}
      rows.append('accuracy', values)
      cells = ' | '.join(f'{found[gate]:.1e}' for gate in gates)
      print(f'| {impl} | {dtype} | {cells} |', flush=True)


def _largest(selfcheck, impl, length, dtype):
  """The largest error by gate, over decays, reads, starts and tensors."""
  largest = dict.fromkeys(selfcheck.GATES, 0.0)
  for decay in ('key', 'head'):
    drawn = selfcheck.draw(length, decay, dtype)
    for read in ('after', 'before'):
      errors = selfcheck.errors(*drawn, impl=impl, read=read).values()
      by_row = [max(row) for row in zip(*errors, strict=True)]
      for row, error in enumerate(by_row):
        gate = list(selfcheck.GATES)[row // len(selfcheck.STARTS)]
        largest[gate] = max(largest[gate], float(error))
  return largest


if __name__ == '__main__':
  command.run(main)
