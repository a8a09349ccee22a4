"""Time and memory of one training step as one size grows.

Length (a batch of 1), batch, width and layers of ours; length of attention,
full and within a window, and of PyTorch's LSTM and GRU at equal weights. What
does not fit in memory is a row that says so.

  python -m benchmarks.run --suite=scaling
"""

import numpy as np

from benchmarks.harness import case
from benchmarks.harness import curves as curves_lib
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

LENGTHS = [2**n for n in range(7, 19)]  # 128 to 262,144
WINDOWS = (256, 1024)
LONGEST_RECURRENT = 16_384  # of PyTorch's cells, whose time is linear
SEGMENT = 4096  # steps of the whole model that are kept at a time
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
WIDTHS = (64, 128, 256, 512, 1024)
LAYERS = (1, 2, 4, 8)
FULL = 'attention, full'
OURS = 'published_model.train_step'


def cases(quick: bool) -> list[case.Case]:
  """Lengths first, then the others."""
  lengths = [16, 32, 64] if quick else LENGTHS
  return [*_by_length(lengths), *_by_others(quick)]


def _by_length(lengths):
  for length in lengths:
    for name, workload, parameters in _of_length(length):
      size = {'batch': 1, 'length': length, **parameters}
      yield _case('length', name, length, workload, size)


def _of_length(length):
  """(name, workload, parameters) of those that are measured at a length."""
  yield 'ours', OURS, {}
  if length <= 8192:
    yield 'ours, scan', OURS, {'overrides': {'recurrence.impl': 'scan'}}
  if length > SEGMENT:
    segments = {'overrides': {'remat.segment': SEGMENT}}
    yield f'ours, segments of {SEGMENT}', OURS, segments
  attention = 'attention_model.train_step'
  yield FULL, attention, {}
  for window in WINDOWS:
    if length > window:
      yield f'attention, window {window}', attention, {'window': window}
  if length <= LONGEST_RECURRENT:
    for kind in ('lstm', 'gru'):
      model = {'kind': kind, 'least': case.PUBLISHED_WEIGHTS}
      parameters = {'model': model, 'sequences': 1}
      yield f'PyTorch {kind.upper()}', 'torch_model.train_step', parameters


def _by_others(quick):
  length = 16 if quick else 512
  few = 2 if quick else None
  for batch in BATCHES[:few]:
    yield _case(
      'batch', 'ours', batch, OURS, {'batch': batch, 'length': length}
    )
  size = {'batch': 2 if quick else 8, 'length': length}
  for kind, sizes in (('width', WIDTHS), ('layers', LAYERS)):
    for value in sizes[:few]:
      overrides = {f'model.{kind}': value, 'model.unroll': 1}
      yield _case(kind, 'ours', value, OURS, {**size, 'overrides': overrides})


def _case(kind, name, value, workload, parameters):
  # Fewer of what takes long: attention's time is quadratic.
  length = parameters['length']
  repeats = 10 if length <= 8192 else 3
  if name == FULL and length > 4096:
    repeats = 3 if length <= 16_384 else 1
  return case.Case(
    f'{kind} {value}: {name}', f'workloads.{workload}', parameters, repeats
  )


FITTED = 4  # largest sizes that an exponent is fitted to
PAIR = (8192, 65536)  # lengths of the growth that is stated
NEAR = 0.15  # a claimed exponent is confirmed within this
# What the publication says of complexity in the length, without measuring it.
CLAIMS = (
  ("SimpleRNN's time is linear", 'ours', 'median', 1),
  ("SimpleRNN's memory is linear", 'ours', 'temp_bytes', 1),
  ("Self-attention's time is quadratic", FULL, 'median', 2),
  ("Self-attention's memory is quadratic", FULL, 'temp_bytes', 2),
)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Time and memory against each size, with fitted exponents."""
  for kind in ('length', 'batch', 'width', 'layers'):
    if not (curves := curves_lib.of(rows, kind)):
      continue
    yield f'**{kind.capitalize()}**'
    yield curves_lib.table(curves, kind)
    yield f'Exponents fitted to the {FITTED} largest sizes of each:'
    yield _exponents(curves)
    yield from curves_lib.pictures(curves, kind, plots, 'a training step')
    if kind == 'length':
      yield from _growth(curves)
      yield from _crossing(curves)
      yield from _claims(curves)


def exponent(pairs: list[tuple[int, float]]) -> float | None:
  """The slope of log y over log x at the largest sizes; None if too few."""
  if len(pairs) < 2:
    return None
  x, y = np.log(np.array(pairs[-FITTED:], float)).T
  return float(np.polyfit(x, y, 1)[0])


def _exponents(curves):
  lines = []
  for name, curve in curves.items():
    fits = [
      exponent(curves_lib.points(curve, key))
      for key in ('median', 'temp_bytes')
    ]
    lines.append([name, *('-' if x is None else f'{x:.2f}' for x in fits)])
  return tables.table('model | time | memory', lines)


def _growth(curves):
  for name, curve in curves.items():
    short, long = (tables.good(curve, length) for length in PAIR)
    if short and long:
      ratio = long['median'] / short['median']
      yield (
        f'From {PAIR[0]:,} to {PAIR[1]:,} tokens the time of {name} grows '
        f'{ratio:.3g} times, the length {PAIR[1] // PAIR[0]} times.'
      )


def _crossing(curves):
  """From which length on ours is faster than each of the others."""
  times = {
    name: dict(curves_lib.points(curve, 'median'))
    for name, curve in curves.items()
  }
  ours = times.pop('ours', {})
  for name, other in times.items():
    both = sorted(ours.keys() & other.keys())
    if not both:
      continue
    slower = [length for length in both if ours[length] >= other[length]]
    faster = [length for length in both if length > max(slower, default=0)]
    yield (
      f'Ours is faster than {name} from {faster[0]:,} tokens on.'
      if faster
      else f'Ours is not faster than {name} at {both[-1]:,} tokens.'
    )


def _claims(curves):
  """A sentence for each claim on complexity, with what was measured."""
  for text, name, key, claimed in CLAIMS:
    fit = exponent(curves_lib.points(curves.get(name, {}), key))
    if fit is None:
      yield f'Claim: {text} in the length: not measured here.'
      continue
    word = 'confirmed' if abs(fit - claimed) <= NEAR else 'corrected'
    yield (
      f'Claim: {text} in the length: **{word}**, it grows with the power '
      f'{fit:.2f} here.'
    )
