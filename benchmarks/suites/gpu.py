"""All that is measured on a GPU, within 20 minutes; refused without one.

The self-check first: a fast kernel that is wrong is worth nothing. Then the
recurrence alone beside flash-linear-attention's, the training step in its
variants, and decoding.
"""

from benchmarks import cases as cases_lib

PLATFORM = 'gpu'
SHAPES = (  # B, L, H, K, P
  [32, 512, 1, 32, 64],
  [8, 1024, 8, 64, 64],
  [4, 2048, 16, 128, 128],
  [8, 8192, 8, 128, 256],
)
IMPLS = ('chunked', 'pallas', 'scan')
STEPS = {
  'chunked': {'recurrence.impl': 'chunked'},
  'chunked, bfloat16': {
    'recurrence.impl': 'chunked',
    'train.precision': 'bfloat16',
  },
  'pallas': {'recurrence.impl': 'pallas'},
  'pallas, bfloat16': {
    'recurrence.impl': 'pallas',
    'train.precision': 'bfloat16',
  },
  'scan': {'recurrence.impl': 'scan'},
}
TIMEOUT = 120.0  # seconds a case; most take 10


def cases(quick):
  """Self-check, operators, training, decoding."""
  check = cases_lib.Case('self-check', 'accuracy.within_bounds', timeout=300.0)
  listed = [check, *cases_lib.peaks(quick), *_operators(), *_steps()]
  return cases_lib.framed(listed, quick)


def _operators():
  for shape in SHAPES:
    for backward in (False, True):
      size = {'shape': shape, 'backward': backward}
      told = f'{"x".join(map(str, shape))}, ' + (
        'forward and backward' if backward else 'forward'
      )
      for impl in IMPLS:
        if impl != 'scan' or shape == SHAPES[0]:
          yield _case(
            f'{told}: ours, {impl}',
            'operators.recurrence',
            {**size, 'impl': impl},
            20,
          )
      name = f'{told}: flash-linear-attention'
      yield _case(name, 'operators.chunk_gla', size, 20)


def _steps():
  for name, overrides in STEPS.items():
    parameters = {'overrides': overrides}
    yield _case(f'training: {name}', 'ours.train_step', parameters)
  removed = {'cell': 'without_recurrence'}
  yield _case('training: recurrence removed', 'ours.train_step', removed)
  yield _case('decode: one step', 'decoding.step', {})
  yield _case('decode: whole generation', 'decoding.generate', {}, 50)
  for batch in (1, 32, 256):
    size = {'batch': batch, 'prefix': 64}
    yield _case(f'decode: loop, batch {batch}', 'decoding.loop', size)


def _case(name, subject, parameters, repeats=10):
  return cases_lib.Case(name, subject, parameters, repeats, timeout=TIMEOUT)
