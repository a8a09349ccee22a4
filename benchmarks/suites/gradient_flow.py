"""Gradients of the last loss by inputs before it, untrained and trained.

Nothing is timed.
"""

from benchmarks import cases as cases_lib

MODELS = ('SimpleRNN', 'SimpleRNN, simple')
STEPS = 300


def cases(quick):
  """Each model as it starts, and after training on text."""
  small = {'length': 32, 'rows': 2} if quick else {}
  return [
    cases_lib.Case(
      f'{model}, {"trained" if steps else "initial"}',
      'gradient_flow.norms',
      {'model': model, 'steps': steps, **small},
      1,
    )
    for steps in (0, 3 if quick else STEPS)
    for model in MODELS
  ]
