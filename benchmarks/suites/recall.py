"""Answers that small models get right, by the distance of what is asked.

Each case trains one model on one distance, from fresh texts; nothing is timed.
The models have two layers of width 64, of 24,576 to 25,408 weights each.
"""

from benchmarks import cases as cases_lib

MODELS = (
  'SimpleRNN',
  'SimpleRNN, simple',
  'attention, window 32',
  'attention, full',
)
DISTANCES = (16, 64, 256)
STEPS = {'recall': 500, 'copying': 300}


def cases(quick):
  """The shortest distance first, associative recall before copying."""
  return [
    cases_lib.Case(
      f'{source} {distance}: {model}',
      'recall.answers',
      {
        'model': model,
        'source': source,
        'distance': distance,
        'steps': 3 if quick else steps,
      },
      1,
    )
    for distance in ((4,) if quick else DISTANCES)
    for source, steps in STEPS.items()
    for model in MODELS
  ]
