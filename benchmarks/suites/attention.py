"""Attention alone by its length: forward and backward, 8 heads of 64.

All scores at once, in blocks, in blocks within a window, and to the keys of the
highest scores; and how far blocks are from all at once. Rows that each step
sees whole, in the forms of `ops.row_attention`: batches of 4, 3 heads.
"""

from benchmarks import cases as cases_lib

LENGTHS = [2**n for n in range(9, 15)]  # 512 to 16,384
LONGEST_TOP = 8192  # finding the highest scores takes long
COMPARED = 8192  # the length at which blocks are compared with all at once
FORMS = {
  'exact': {'options': {'impl': 'exact'}},
  'blocked': {'options': {'impl': 'blocked'}},
  'window 1024': {'options': {'impl': 'blocked'}, 'window': 1024},
  'window 256': {'options': {'impl': 'blocked'}, 'window': 256},
  'top 64': {'options': {'impl': 'blocked', 'top_k': 64}},
}
ROWS = (64, 197, 1024, 4096)  # patches of pictures
ROW_FORMS = {
  'softmax': ('pairs', 'blocked'),
  'linear': ('pairs', 'state'),
}  # by weights


def cases(quick):
  """Short rows first."""
  lengths = (64, 128) if quick else LENGTHS
  listed = [
    cases_lib.Case(
      f'length {length}: {name}',
      'operators.attention',
      {'shape': _shape(length, quick), **parameters},
      10 if length <= 2048 else 3,
    )
    for length in lengths
    for name, parameters in FORMS.items()
    if parameters.get('window', 0) < length
    and (length <= LONGEST_TOP or not name.startswith('top'))
  ]
  compared = lengths[-1] if quick else COMPARED
  difference = cases_lib.Case(
    f'difference {compared}: blocked',
    'operators.attention_difference',
    {'shape': _shape(compared, quick)},
    1,
  )
  return cases_lib.framed([*listed, difference, *_rows(quick)], quick)


def _rows(quick):
  for length in (8,) if quick else ROWS:
    for weights, impls in ROW_FORMS.items():
      # Of a Vision-BDH's neurons, or a ViT's heads.
      wide = [1024, 192] if weights == 'linear' else [64, 64]
      sizes = [1, length, 1, 8, 8] if quick else [4, length, 3, *wide]
      for impl in impls:
        yield cases_lib.Case(
          f'row {length}: {weights}, {impl}',
          'operators.row_attention',
          {'shape': sizes, 'options': {'weights': weights, 'impl': impl}},
          10 if length <= 1024 else 3,
        )


def _shape(length, quick):
  return [1, length, 1, 8, 8] if quick else [1, length, 8, 64, 64]
