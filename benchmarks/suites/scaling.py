"""Time and memory of one training step as one size grows.

Length (a batch of 1), batch, width and layers of ours; length of attention,
full and within a window, and of PyTorch's LSTM and GRU at equal weights. What
does not fit in memory is a row that says so.
"""

from benchmarks import cases as cases_lib

LENGTHS = [2**n for n in range(7, 19)]  # 128 to 262,144
WINDOWS = (256, 1024)
LONGEST_RECURRENT = 16_384  # of PyTorch's cells, whose time is linear
SEGMENT = 4096  # steps of the whole model that are kept at a time
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
WIDTHS = (64, 128, 256, 512, 1024)
LAYERS = (1, 2, 4, 8)


def cases(quick):
  """Lengths first, then the others."""
  lengths = [16, 32, 64] if quick else LENGTHS
  listed = [*_by_length(lengths), *_by_others(quick)]
  return cases_lib.framed(listed, quick)


def _repeats(length, name):
  """Fewer of what takes long: attention's time is quadratic."""
  if name == 'attention, full' and length > 4096:
    return 3 if length <= 16_384 else 1
  return 10 if length <= 8192 else 3


def _by_length(lengths):
  for length in lengths:
    size = {'batch': 1, 'length': length}
    yield _case('length', 'ours', length, 'ours.train_step', size)
    if length <= 8192:
      scan = {**size, 'overrides': {'recurrence.impl': 'scan'}}
      yield _case('length', 'ours, scan', length, 'ours.train_step', scan)
    if length > SEGMENT:
      segments = {**size, 'overrides': {'remat.segment': SEGMENT}}
      name = f'ours, segments of {SEGMENT}'
      yield _case('length', name, length, 'ours.train_step', segments)
    full = 'attention, full'
    yield _case('length', full, length, 'attention.train_step', size)
    for window in WINDOWS:
      if length > window:
        parameters = {**size, 'window': window}
        name = f'attention, window {window}'
        yield _case('length', name, length, 'attention.train_step', parameters)
    if length <= LONGEST_RECURRENT:
      for kind in ('lstm', 'gru'):
        model = {'kind': kind, 'least': cases_lib.PUBLISHED_WEIGHTS}
        parameters = {**size, 'model': model, 'sequences': 1}
        name = f'PyTorch {kind.upper()}'
        yield _case('length', name, length, 'torch_peer.train_step', parameters)


def _by_others(quick):
  length = 16 if quick else 512
  for batch in BATCHES[: 2 if quick else None]:
    size = {'batch': batch, 'length': length}
    yield _case('batch', 'ours', batch, 'ours.train_step', size)
  size = {'batch': 2 if quick else 8, 'length': length}
  for kind, key, values in (
    ('width', 'model.width', WIDTHS),
    ('layers', 'model.layers', LAYERS),
  ):
    for value in values[: 2 if quick else None]:
      overrides = {key: value, 'model.unroll': 1}
      parameters = {**size, 'overrides': overrides}
      yield _case(kind, 'ours', value, 'ours.train_step', parameters)


def _case(kind, name, value, subject, parameters):
  repeats = _repeats(parameters['length'], name)
  return cases_lib.Case(f'{kind} {value}: {name}', subject, parameters, repeats)
