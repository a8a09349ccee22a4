"""The native recurrence on a CPU: in a training step, and by itself.

Run it once under each jax that is to have its rows: the report keeps them
apart.
"""

from benchmarks import cases as cases_lib

PLATFORM = 'cpu'
SHAPES = (
  [32, 512, 1, 32, 64],
  [8, 256, 4, 16, 48],
  [1, 4096, 1, 32, 64],
  [1, 4096, 4, 16, 48],
  [4, 1024, 4, 64, 128],
)


def cases(quick):
  """The training step, then each shape forward and both ways."""
  size = {'batch': 2, 'length': 32} if quick else {}
  listed = [
    cases_lib.Case('training step', 'native.train_step', size, 22),
  ]
  for shape in SHAPES:
    size = 'x'.join(map(str, shape))
    for backward in (False, True):
      listed.append(
        cases_lib.Case(
          f'{"forward and backward" if backward else "forward"}: {size}',
          'native.recurrence',
          {'shape': [1, 64, 1, 4, 4] if quick else shape, 'backward': backward},
          22,
        )
      )
  return cases_lib.framed(listed, quick)
