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


LONGER = 1500  # steps of those that learn associative recall late


def cases(quick):
  """The shortest distance first, associative recall before copying."""
  distances = (4,) if quick else DISTANCES
  trained = [
    _case(source, distance, model, 3 if quick else steps)
    for distance in distances
    for source, steps in STEPS.items()
    for model in MODELS
  ]
  longer = [
    _case('recall', distance, model, 4 if quick else LONGER, ', longer')
    for distance in distances
    for model in ('SimpleRNN', 'attention, full')
  ]
  guessed = [
    cases_lib.Case(
      f'recall {distance}: elimination',
      'recall.elimination',
      {'distance': distance},
      1,
    )
    for distance in distances
  ]
  return [*guessed, *trained, *longer]


def _case(source, distance, model, steps, told=''):
  parameters = {
    'model': model,
    'source': source,
    'distance': distance,
    'steps': steps,
  }
  name = f'{source} {distance}: {model}{told}'
  return cases_lib.Case(name, 'recall.answers', parameters, 1)
