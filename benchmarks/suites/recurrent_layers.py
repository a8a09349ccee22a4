"""One layer of LSTM and GRU alone, ours and PyTorch's, by (B, L, D).

Cases that are compared follow one another, so that a change of the machine's
speed meets all of them.
"""

from benchmarks import cases as cases_lib

CELLS = ('lstm', 'gru')
IMPLS = ('native', 'scan')
TRAINING = (
  [32, 128, 128],
  [32, 512, 128],
  [32, 4096, 128],
  [1, 4096, 128],
  [1, 16384, 128],
  [32, 128, 256],
)
STEPPING = ([1, 512, 128], [32, 512, 128], [1, 512, 256], [32, 512, 256])


def cases(quick):
  """Training and stepping of each cell at each shape."""
  listed = []
  for cell in CELLS:
    for shape in TRAINING:
      listed += _compared('training', cell, shape, IMPLS, quick)
    for shape in STEPPING:
      listed += _compared('stepping', cell, shape, ('auto',), quick)
  return cases_lib.framed(listed, quick)


def _compared(what, cell, shape, impls, quick):
  """PyTorch's case, then ours."""
  size = {'cell': cell, 'shape': [2, 4, 8] if quick else shape}
  name = f'{what}: {cell}, {"x".join(map(str, shape))}'
  yield cases_lib.Case(f'{name}, PyTorch', f'torch_layers.{what}', size)
  for impl in impls:
    yield cases_lib.Case(
      f'{name}, {impl}', f'recurrent_layers.{what}', size | {'impl': impl}
    )
