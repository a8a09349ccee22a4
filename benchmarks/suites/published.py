"""The published comparison in its own form, forward only and training.

256 sequences of 512 tokens; a row's `sequences` says how many were timed, and
the report scales by them: slow ways of computing get fewer sequences and
repeats. A training row is a step, or a few. Generation makes 100 tokens after
256, whether by full re-run or step by step.

  python -m benchmarks.run --suite=published
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

CHUNKED = {'recurrence.impl': 'chunked'}
SCAN = {'recurrence.impl': 'scan'}
OURS = {
  'separate': {'cell.fused': False},
  'fused': {},
  'scan': SCAN,
  'chunked': CHUNKED,
  'scan, remat sqrt': SCAN | {'remat.every': 'sqrt'},
  'chunked, remat 128': CHUNKED | {'remat.every': 128},
  'chunked, segments of 32': CHUNKED | {'remat.segment': 32},
}
THEIRS = {
  'separate': {},
  'fused': {'fused': True},
  'fused, checkpointed': {'fused': True, 'checkpointed': True},
}
# By loop: (sequences, repeats) of forward and training, batch 1; repeats of
# forward and training, batch 32. Loops by index take minutes per step.
EFFORT = {
  'indexed': ((8, 5), (1, 3), 3, 2),
  'history': ((8, 5), (1, 3), 3, 2),
  'careful': ((32, 5), (8, 5), 5, 5),
  'compiled': ((32, 5), (8, 5), 5, 5),
}
VARIANTS = {'history': ('separate',), 'compiled': ('fused',)}  # not all
KEPT = 'indexed', 'history'  # published forward passes keep for backward
# What the others are compared with, at their batch.
BASE = 'ours, fused'
STEPWISE = 'generation: ours, stepwise'
MODEL = 'workloads.published_model'
PEER = 'workloads.torch_model'


def cases(quick: bool) -> list[case.Case]:
  """Every row of the two tables, ours and PyTorch's."""
  many, length, sequences = (2, 16, 4) if quick else (32, 512, 256)
  listed = [*_ours(many, length, sequences), *_theirs(many, length, sequences)]
  return [*listed, *_generation(quick)]


def _size(batch, length, **others):
  weights = case.PUBLISHED_WEIGHTS
  return {'batch': batch, 'length': length, 'weights': weights, **others}


def _ours(many, length, sequences):
  for batch in (1, many):
    for name, overrides in OURS.items():
      label = f'ours, {name}, batch {batch}'
      size = _size(batch, length, overrides=overrides)
      many = size | {'sequences': sequences}
      yield _case(f'forward: {label}', f'{MODEL}.forward', many)
      yield _case(f'training: {label}', f'{MODEL}.train_step', size)
    yield _case(
      f'training: ours, recurrence removed, batch {batch}',
      f'{MODEL}.train_step',
      _size(batch, length, cell='without_recurrence'),
    )


def _case(name, workload, parameters, repeats=10):
  kind, _, batch = name.partition(': ')[0], *name.rpartition(', ')[1:]
  base = f'{kind}: {BASE}, {batch}'
  return case.Case(name, workload, parameters, repeats, base=base)


def _theirs(many, length, sequences):
  for loop, (forward, training, *repeats) in EFFORT.items():
    yield from _pair(loop, 'separate', 1, length, (forward, training))
    efforts = (sequences, repeats[0]), (many, repeats[1])
    for name in VARIANTS.get(loop, THEIRS):
      yield from _pair(loop, name, many, length, efforts)


def _pair(loop, name, batch, length, efforts):
  """A forward pass and a training step of PyTorch's."""
  label = f'PyTorch, {loop}, {name}, batch {batch}'
  (sequences, repeats), (trained, few) = efforts
  size = _size(batch, length, model={'loop': loop, **THEIRS[name]})
  # The published passes kept what a backward pass needs, and ran none.
  kept = {'sequences': sequences, 'gradients': loop in KEPT}
  yield _case(f'forward: {label}', f'{PEER}.forward', size | kept, repeats)
  yield _case(
    f'training: {label}',
    f'{PEER}.train_step',
    size | {'sequences': trained},
    few,
  )


def _generation(quick):
  size = {'prefix': 8, 'new_tokens': 4} if quick else {}
  size = {'weights': case.PUBLISHED_WEIGHTS, **size}
  for loop, few in (('indexed', 5), ('careful', 10), ('compiled', 10)):
    for way, repeats in (('rerun', few), ('stepwise', 10)):
      if loop == 'compiled' and way == 'rerun':
        continue  # a program for each length
      parameters = {'model': {'loop': loop}, 'way': way, **size}
      name = f'generation: PyTorch, {loop}, {way}'
      yield case.Case(
        name, f'{PEER}.generate', parameters, repeats, base=STEPWISE
      )
  # Steps this small can be faster without threads that wait for each other.
  yield case.Case(
    'generation: PyTorch, careful, stepwise, one core',
    f'{PEER}.generate',
    {'model': {'loop': 'careful'}, 'way': 'stepwise', **size},
    core_limit=1,
    base=STEPWISE,
  )
  del size['weights']  # always those of the published model
  for way in ('rerun', 'stepwise', 'loop'):
    name = f'generation: ours, {"one loop" if way == "loop" else way}'
    given = {'way': way, **size}
    yield case.Case(name, 'workloads.decoding.generate', given, base=STEPWISE)


# The report: the two published tables, measured here, and each claim made from
# them. Published figures are from a machine that the publication doesn't name;
# they are measured with ours for their ratios.
SEQUENCES = 256
# What was published: seconds and MB of its two tables, by our rows' names.
FORWARD = 'forward: PyTorch, indexed, '
GENERATION = 'generation: PyTorch, indexed, '
PUBLISHED = {
  f'{FORWARD}separate, batch 1': (3.1519, 20.51),
  f'{FORWARD}separate, batch 32': (0.4370, 2565.50),
  f'{FORWARD}fused, batch 32': (0.4283, 2565.50),
  f'{FORWARD}fused, checkpointed, batch 32': (0.3770, 136.69),
  f'{GENERATION}rerun': (5.4187, 24.61),
  f'{GENERATION}stepwise': (0.2082, 49.74),
}
# (what, the row before, the row after): the published ratio follows.
CLAIMS = (
  (
    'Batches of 32 rather than 1 make the forward pass {} times as fast',
    f'{FORWARD}separate, batch 1',
    f'{FORWARD}separate, batch 32',
  ),
  (
    'One fused projection makes the forward pass {} times as fast',
    f'{FORWARD}separate, batch 32',
    f'{FORWARD}fused, batch 32',
  ),
  (
    'Checkpointing makes the forward pass {} times as fast',
    f'{FORWARD}fused, batch 32',
    f'{FORWARD}fused, checkpointed, batch 32',
  ),
  (
    'Stepwise generation is {} times as fast as a full re-run',
    f'{GENERATION}rerun',
    f'{GENERATION}stepwise',
  ),
)
PAIR = (  # without and with checkpoints
  'PyTorch, indexed, fused, batch 32',
  'PyTorch, indexed, fused, checkpointed, batch 32',
)
COMPARED = {  # with our training step
  'the same model without its recurrence': 'ours, recurrence removed',
  'our own scan': 'ours, scan',
  'the careful PyTorch loop, fused too': 'PyTorch, careful, fused',
  'the same loop by `torch.compile`': 'PyTorch, compiled, fused',
  "the published code's indexing": 'PyTorch, indexed, separate',
  'the same with a history of states': 'PyTorch, history, separate',
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """The tables, the ratios and the claims."""
  yield from result_tables(rows)
  steps = {
    name: 1e3 * seconds
    for name, row in tables.with_prefix(rows, 'training: ').items()
    if (seconds := per_sequence(row))
  }
  if steps:
    label = 'training, ms per sequence of 512 tokens'
    yield plots.bars('training', steps, label)
  yield (
    '**The claims.** Confirmed means: within a quarter of the claimed ratio.'
  )
  yield '\n'.join(f'* {line}' for line in claims(rows))


def result_tables(rows: tables.Rows) -> tables.Report:
  """The two published tables, one of training, and ratios."""
  yield '**Forward pass**, 256 sequences of 512 tokens.'
  yield _table(rows, 'forward')
  yield '**Training step** (forward, backward, AdamW), scaled to 256 sequences.'
  yield _table(rows, 'training')
  yield from _ratios(rows)
  yield '**Generation**, 100 tokens after a prefix of 256, batch 1.'
  yield _generation_table(rows)


def per_sequence(row: tables.Row | None) -> float | None:
  """Median seconds per sequence, or None."""
  if not row or 'median' not in row:
    return None
  return row['median'] / row['sequences']


def _table(rows, kind):
  ours = tables.good(rows, f'{kind}: {BASE}, batch 32')
  lines = []
  for name, row in tables.with_prefix(rows, f'{kind}: ').items():
    own = per_sequence(row)
    lines.append(
      (
        name,
        _before(f'{kind}: {name}'),
        tables.timed(row, SEQUENCES / row['sequences'] if own else 1.0),
        f'{row["sequences"]} x {row["repeats"]}' if own else '-',
        tables.relative(row, ours),
        tables.peak_memory(row),
        tables.mebibytes(row.get('temp_bytes')),
      )
    )
  return tables.table(
    'variant | published | seconds | timed | relative to ours, fused, batch 32 '
    '| peak memory | XLA temporaries',
    lines,
  )


def _before(name):
  """The published figures of that row."""
  if name not in PUBLISHED:
    return '-'
  seconds, megabytes = PUBLISHED[name]
  return f'{seconds:.4f} s, {megabytes:,.1f} MB'


def _ratios(rows):
  """Sentences on the training step and what it is compared with."""
  ours = rows.get(f'training: {BASE}, batch 32')
  for label, name in COMPARED.items():
    other = rows.get(f'training: {name}, batch 32')
    if ratio := tables.ratio(ours, other):
      yield (
        f'Training at batch 32 takes {ratio:.3g} times the time of {label} '
        f'({tables.relative(other, ours)} as fast).'
      )


def _generation_table(rows):
  lines = []
  for name, row in tables.with_prefix(rows, 'generation: ').items():
    token = row.get('seconds_per_token')
    lines.append(
      (
        name,
        _before(f'generation: {name}'),
        tables.timed(row),
        '-' if token is None else tables.seconds(token),
        tables.peak_memory(row),
      )
    )
  head = 'variant | published | seconds | per token | peak memory'
  return tables.table(head, lines)


def claims(rows: tables.Rows) -> list[str]:
  """A sentence for each claim of the publication, with what was measured."""
  lines = [_speed_claim(rows, *claim) for claim in CLAIMS]
  return [*lines, *_memory_claims(rows), *_training_claim(rows)]


def _speed_claim(rows, text, before, after):
  claimed = PUBLISHED[before][0] / PUBLISHED[after][0]
  text = text.format(f'{claimed:.3g}')
  measured = tables.ratio(rows.get(before), rows.get(after))
  if measured is None:
    return f'{text}: not measured here.'
  line = f'{text}: {tables.verdict(claimed, measured)}'
  if before.startswith(GENERATION):
    line += (
      ' Here both make 100 tokens; the published runs made 100 by full re-run '
      'and 20 stepwise.'
    )
  return line


def _memory_claims(rows):
  """Checkpointing: less memory, as published, and once there is a gradient."""
  plain, kept = (PUBLISHED[f'forward: {name}'][1] for name in PAIR)
  forward, training = (_memory_ratio(rows, k) for k in ('forward', 'training'))
  text = (
    tables.verdict(plain / kept, forward) if forward else 'not measured here.'
  )
  yield (
    'Checkpointing divides the peak memory of a forward pass by '
    f'{plain / kept:.3g}: {text}'
  )
  if training:
    yield (
      'Nothing was published on its memory in training, for which it exists: '
      f'it divides the peak by {training:.3g} here.'
    )


def _memory_ratio(rows, kind):
  """Resident growth without over with checkpoints; None if not measured."""
  pair = [tables.good(rows, f'{kind}: {name}') or {} for name in PAIR]
  sizes = [row.get('resident_delta_bytes') for row in pair]
  return sizes[0] / sizes[1] if all(sizes) else None


def _training_claim(rows):
  """Checkpointing costs time as soon as there is a backward pass."""
  plain, kept = (rows.get(f'training: {name}') for name in PAIR)
  if ratio := tables.ratio(kept, plain):
    yield (
      'No backward pass was published for checkpointing, which exists for it: '
      f'a training step with it takes {ratio:.3g} times as long here.'
    )
