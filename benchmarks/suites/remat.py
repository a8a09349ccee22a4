"""Schedules of kept states: a training step of the published model by 'scan'.

Rows of 1,024 and 8,192 tokens, four at a time. The chunked form stands beside
them, which needs no schedule.
"""

from benchmarks import cases as cases_lib

LENGTHS = (1024, 8192)
ROWS = 4
SCAN = {'recurrence.impl': 'scan'}
SCHEDULES = {  # options of the section remat
  'all kept': {},
  'uniform, every 8': {'every': 8},
  'uniform, every 32': {'every': 32},
  'uniform, sqrt': {'every': 'sqrt'},
  'logarithmic, blocks of 1': {'every': 1, 'schedule': 'logarithmic'},
  'logarithmic, blocks of 16': {'every': 16, 'schedule': 'logarithmic'},
  'binomial, 8 kept, blocks of 1': {
    'every': 1,
    'schedule': 'binomial',
    'kept': 8,
  },
  'binomial, 8 kept, blocks of 16': {
    'every': 16,
    'schedule': 'binomial',
    'kept': 8,
  },
  'binomial, 16 kept, blocks of 16': {
    'every': 16,
    'schedule': 'binomial',
    'kept': 16,
  },
}


def cases(quick):
  """Each schedule at each length."""
  listed = []
  for length in (32,) if quick else LENGTHS:
    size = {'batch': 2 if quick else ROWS, 'length': length}
    for name, options in SCHEDULES.items():
      overrides = SCAN | {f'remat.{key}': x for key, x in options.items()}
      listed.append(_case(f'{name}, {length} steps', overrides, size))
    listed.append(_case(f'chunked, {length} steps', {}, size))
  return cases_lib.framed(listed, quick)


def _case(name, overrides, size):
  parameters = {'overrides': overrides, **size}
  return cases_lib.Case(name, 'ours.train_step', parameters, 5)
