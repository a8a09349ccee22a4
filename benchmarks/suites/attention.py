"""Attention alone by its length: forward and backward, 8 heads of 64.

All scores at once, in blocks, in blocks within a window, and to the keys of the
highest scores; and how far blocks are from all at once.
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
  return cases_lib.framed([*listed, difference], quick)


def _shape(length, quick):
  return [1, length, 1, 8, 8] if quick else [1, length, 8, 64, 64]
