"""Gradients of the last loss by inputs before it, untrained and trained.

`rnn_jax/inspection/flow.py` on rows of held-out text, each of them one document
as far as the model knows. Nothing is timed.

  python -m benchmarks.run --suite=gradient_flow   4 minutes on 2 cores
"""

from typing import Any

import numpy as np

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

MODELS = ('SimpleRNN', 'SimpleRNN, simple')
STEPS = 300


def cases(quick: bool) -> list[case.Case]:
  """Each model as it starts, and after training on text."""
  small = {'length': 32, 'rows': 2} if quick else {}
  return [
    case.Case(
      f'{model}, {"trained" if steps else "initial"}',
      'suites.gradient_flow.norms',
      {'model': model, 'steps': steps, **small},
      repeats=0,
    )
    for steps in (0, 3 if quick else STEPS)
    for model in MODELS
  ]


def norms(
  model: str, steps: int, length: int = 512, rows: int = 16, seed: int = 0
) -> tables.Row:
  """Gradient norms by T - t of a byte model of the standard library."""
  from benchmarks.workloads import training
  from rnn_jax.inspection import curves
  from rnn_jax.inspection import flow

  raw = training.raw_config(model)
  raw.task.name = 'language_modeling'
  raw.train.seed = seed
  training.set_steps(raw, steps)
  raw.data.update(
    source='python_stdlib',
    tokenizer='bytes',
    layout='stream',
    length=length,
    batch_size=8,
    splits=(98, 1, 1),
  )
  with training.Training(raw) as run:
    values = run.learn(steps)
    batch = batch_of(_text(run.corpus, rows, length + 1))
  by_delay = curves.norms([flow.sums(run.programs.task, run.params, batch)])
  return values | {'norms': [float(f'{x:.4g}') for x in by_delay]}


def _text(corpus, rows, length):
  """ids of the first long documents that were held out, rows x length."""
  chosen, documents = [], corpus.documents['validation']
  for n in range(len(documents)):
    ids = corpus.tokenizer.encode_document(documents.read(n))
    if len(ids) >= length and len(chosen) < rows:
      chosen.append(ids[:length])
  return np.stack(chosen)


def batch_of(ids: np.ndarray) -> Any:
  """A batch_lib.Batch of rows of ids, each of which predicts the next."""
  import jax

  from rnn_jax.data.batching import batch as batch_lib

  starts = np.zeros(ids[:, 1:].shape, np.int32)
  starts[:, 0] = 1
  weights = np.ones(starts.shape, np.float32)
  return jax.device_put(
    batch_lib.Batch(ids[:, :-1], ids[:, 1:], weights, starts)
  )


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Octaves of the delay in a table, all delays in a plot."""
  from rnn_jax.inspection import curves

  measured = {name: row for name, row in rows.items() if 'norms' in row}
  octaves = {n: curves.octaves(row['norms']) for n, row in measured.items()}
  yield tables.provenance(rows)
  if measured:
    delays = sorted({delay for curve in octaves.values() for delay in curve})
    head = ['model', 'nats per byte', *(f'from {delay}' for delay in delays)]
    lines = [
      [
        name,
        f'{row["held_out"]["loss"]:.3f}' if 'held_out' in row else '-',
        *(
          f'{octaves[name][n]:.1e}' if n in octaves[name] else '-'
          for n in delays
        ),
      ]
      for name, row in measured.items()
    ]
    yield tables.table(' | '.join(head), lines)
    series = {n: [*enumerate(row['norms'])][1:] for n, row in measured.items()}
    yield plots.lines('delay', series, ('T - t, steps', '|d loss_T / d x_t|'))
    yield '\n'.join(f'* {line}' for line in _outcome(octaves))


def _outcome(octaves):
  """Sentences: how far each one falls, and how two of a kind compare."""
  for name, curve in octaves.items():
    first, last = min(curve), max(curve)
    text = f'{name}: over delays of {last} and more the gradient is '
    if curve[last]:
      ratio = curve[first] / curve[last]
      yield f'{text}1/{ratio:,.3g} of that at a delay of {first}.'
    else:
      yield f'{text}0 in float32.'
  for kind in ('initial', 'trained'):
    ours, simple = (octaves.get(f'{model}, {kind}') for model in MODELS)
    if not ours or not simple:
      continue
    last = max(ours)
    if simple[last]:
      ratio = ours[last] / simple[last]
      yield (
        f"{kind}: over delays of {last} and more the improved preset's "
        f"gradient is {ratio:.3g} times the simple preset's."
      )
    else:
      yield f"{kind}: nothing is left of the simple preset's there."
