"""How long a chunk of the recurrence should be: forward and backward alone.

Every length at every shape, (B, L, H, K, P) in float32, with one decay a key
row and one a head.
"""

from benchmarks import cases as cases_lib

LENGTHS = (32, 64, 128, 256, 512)
SHAPES = (
  [32, 512, 1, 32, 64],
  [8, 2048, 4, 16, 48],
  [4, 4096, 4, 64, 64],
  [1, 4096, 2, 128, 128],
  [1, 16384, 1, 32, 64],
)


def cases(quick):
  """One case a shape, decay and length of chunks."""
  listed = [
    cases_lib.Case(
      f'{"x".join(map(str, shape))}, one decay a {decay}, chunks of {length}',
      'operators.recurrence',
      {
        'shape': [1, 64, 1, 4, 4] if quick else shape,
        'impl': 'chunked',
        'backward': True,
        'dtype': 'float32',
        'by_head': decay == 'head',
        'chunk_length': length,
      },
      20,
    )
    for shape in SHAPES
    for decay in ('key', 'head')
    for length in LENGTHS
  ]
  return cases_lib.framed(listed, quick)
