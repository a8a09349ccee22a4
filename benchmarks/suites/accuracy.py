"""The largest error of each form of the recurrence against float64.

Outputs, final state and all gradients, with one decay per key row and one per
head, reads before and after the update, by kind of gate. rnn_jax.selfcheck says
what errors are relative to. Forms whose matmuls round their operands have a row
for each format. On a CPU, TF32 is emulated by cutting off bits, and kernels are
interpreted. Errors of the delta rule are relative to the largest number of a
tensor. Nothing is timed.

  python -m benchmarks.run --suite=accuracy        20 minutes on 2 cores
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

LENGTHS = {'step': 1, 'scan': 130, 'associative': 130, 'chunked': 130}
OPERANDS = ('float32', 'tf32', 'bfloat16')
# A form of kernels: its length, and one row of how many, as it is interpreted.
KERNELS = {'Triton': (130, 1), 'Mosaic': (65, 3)}


def cases(quick: bool) -> list[case.Case]:
  """Each implementation by the format of inputs, then of operands."""
  forms = {
    f'{impl}, {inputs}': {'impl': impl, 'L': L, 'inputs': inputs}
    for impl, L in LENGTHS.items()
    for inputs in ('float32', 'bfloat16')
  }
  for operands in OPERANDS:
    chosen = {'inputs': 'float32', 'operands': operands}
    if operands != 'float32':
      chunked = {'impl': 'chunked', 'L': 130, **chosen}
      forms[f'chunked, float32, {operands}'] = chunked
    for form, (L, every) in KERNELS.items():
      kernels = {'impl': 'pallas', 'form': form.lower(), 'every': every}
      forms[f'{form}, float32, {operands}'] = {'L': L, **kernels, **chosen}
  return [
    *(_case(name, 'largest', values, quick) for name, values in forms.items()),
    *(
      _case(
        f'delta rule, float32, {operands}',
        'largest_of_delta',
        {'L': 130, 'operands': operands},
        quick,
      )
      for operands in OPERANDS
    ),
  ]


def _case(name, workload, parameters, quick):
  L = min(parameters['L'], 5) if quick else parameters['L']
  return case.Case(
    name, f'suites.accuracy.{workload}', parameters | {'L': L}, repeats=0
  )


def largest(
  impl: str,
  L: int,
  inputs: str,
  operands: str = 'float32',
  form: str = '',
  every: int = 1,
) -> tables.Row:
  """{'errors': the largest by kind of gate}, of `every` n-th row."""
  import contextlib

  import jax

  from rnn_jax.ops.gla import pallas
  from rnn_jax.selfcheck import gla as selfcheck

  worst = dict.fromkeys(selfcheck.GATES, 0.0)
  for decay in ('key', 'head'):
    drawn = selfcheck.draw(L, decay, inputs)
    drawn = jax.tree.map(lambda x: x[every - 1 :: every], drawn)
    for read in ('after', 'before'):
      with pallas.interpret(form) if form else contextlib.nullcontext():
        errors = selfcheck.errors(*drawn, impl, 64, read, operands).values()
      for row, of_row in enumerate(zip(*errors, strict=True)):
        gate = [*selfcheck.GATES][row * every // len(selfcheck.STARTS)]
        worst[gate] = max(worst[gate], float(max(of_row)))
  return {'errors': worst}


def largest_of_delta(L: int, operands: str) -> tables.Row:
  """{'errors': the largest by kind of gate}, of the chunked delta rule."""
  import functools

  import jax
  import numpy as np

  from rnn_jax.ops import delta
  from rnn_jax.ops.delta import oracle
  from rnn_jax.selfcheck import gla as selfcheck

  run = functools.partial(delta.recurrence, impl='chunked', operands=operands)

  @jax.jit
  def both_ways(inputs, starts, cotangents):
    out, back = jax.vjp(lambda *x: run(*x, starts_BxL=starts), *inputs)
    return *out, *back(cotangents)

  worst = {}
  for decay in ('key', 'head'):
    (state, q, k, v, loga), *others = selfcheck.draw(L, decay, K=32, P=16)
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    beta = np.random.default_rng(0).uniform(0, 2, k.shape[:-1])
    inputs = oracle.Delta(state, q, k, v, loga, np.float32(beta))
    got = jax.device_get(both_ways(inputs, *others))
    want = (
      *oracle.forward(inputs, others[0]),
      *oracle.backward(inputs, others[0], *others[1]),
    )
    errors = map(selfcheck.relative, got, want, map(abs, want))
    for row, of_row in enumerate(zip(*errors, strict=True)):
      gate = [*selfcheck.GATES][row // len(selfcheck.STARTS)]
      worst[gate] = max(worst.get(gate, 0.0), float(max(of_row)))
  return {'errors': worst}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A column of errors for each kind of gate."""
  measured = {name: row for name, row in rows.items() if 'errors' in row}
  gates = dict.fromkeys(g for row in measured.values() for g in row['errors'])
  lines = (
    [
      *(*name.split(', '), 'float32')[:3],
      *(f'{row["errors"][gate]:.1e}' for gate in gates),
    ]
    for name, row in measured.items()
  )
  head = ['implementation', 'inputs', 'operands', *gates]
  yield tables.table(' | '.join(head), lines)
