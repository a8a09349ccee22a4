"""The two published tables, measured here, and each claim made from them.

Published figures are those of the publication, from a machine that it doesn't
name; they stand beside ours for their ratios.
"""

from benchmarks import tables

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
    'separate, batch 1',
    'separate, batch 32',
    FORWARD,
  ),
  (
    'One fused projection makes the forward pass {} times as fast',
    'separate, batch 32',
    'fused, batch 32',
    FORWARD,
  ),
  (
    'Checkpointing makes the forward pass {} times as fast',
    'fused, batch 32',
    'fused, checkpointed, batch 32',
    FORWARD,
  ),
  (
    'Stepwise generation is {} times as fast as a full re-run',
    'rerun',
    'stepwise',
    GENERATION,
  ),
)
CHECKPOINTED = 'PyTorch, indexed, fused, checkpointed, batch 32'
OURS = 'training: ours, fused, batch 32'
REMOVED = 'training: ours, recurrence removed, batch 32'
NEAR = 0.25  # a claim is confirmed within this share of its ratio


def render(found, plots):
  """Markdown of one machine's rows."""
  parts = [
    tables.provenance(found),
    '**Forward pass**, 256 sequences of 512 tokens.',
    _table(found, 'forward'),
    '**Training step** (forward, backward, AdamW), scaled to 256 sequences.',
    _table(found, 'training'),
    *_ratios(found),
    '**Generation**, 100 tokens behind a prefix of 256, batch 1.',
    _generation(found),
    _plot(found, plots),
    '**The claims.** Confirmed means: within a quarter of the claimed ratio.',
    '\n'.join(f'* {line}' for line in claims(found)),
  ]
  return '\n\n'.join(part for part in parts if part)


def _table(found, kind):
  head = (
    'variant',
    'published',
    'seconds',
    'timed',
    'relative to ours, fused, batch 32',
    'peak memory',
    'XLA temporaries',
  )
  ours = per_sequence(found.get(OURS.replace('training', kind)))
  lines = []
  for name, row in tables.with_prefix(found, f'{kind}: ').items():
    own = per_sequence(row)
    scale = SEQUENCES / row['sequences'] if own else 1.0
    before = PUBLISHED.get(f'{kind}: {name}')
    lines.append(
      (
        name,
        f'{before[0]:.4f} s, {before[1]:,.1f} MB' if before else '-',
        tables.timed(row, scale),
        f'{row["sequences"]} x {row["repeats"]}' if own else '-',
        tables.times(own / ours) if own and ours else '-',
        tables.mebibytes(row.get('resident_delta_bytes')),
        tables.mebibytes(row.get('temp_bytes')),
      )
    )
  return tables.table(head, lines)


def per_sequence(row):
  """Median seconds a sequence, or None."""
  if not row or 'median' not in row:
    return None
  return row['median'] / row['sequences']


def _ratios(found):
  """Sentences on the training step beside what it is compared with."""
  ours = per_sequence(found.get(OURS))
  for told, name in (
    ('the same model without its recurrence', REMOVED),
    ('our own scan', 'training: ours, scan, batch 32'),
    (
      'the careful PyTorch loop',
      'training: PyTorch, careful, separate, batch 32',
    ),
    (
      "the published code's indexing",
      'training: PyTorch, indexed, separate, batch 32',
    ),
    (
      'the same with a history of states',
      'training: PyTorch, history, separate, batch 32',
    ),
  ):
    other = per_sequence(found.get(name))
    if ours and other:
      yield (
        f'Training at batch 32 takes {ours / other:.3g} times the time of '
        f'{told} ({tables.times(other / ours)} as fast).'
      )


def _generation(found):
  head = ('variant', 'published', 'seconds', 'a token', 'peak memory')
  lines = []
  for name, row in tables.with_prefix(found, 'generation: ').items():
    before = PUBLISHED.get(f'generation: {name}')
    token = row.get('seconds_per_token')
    lines.append(
      (
        name,
        f'{before[0]:.4f} s, {before[1]:,.1f} MB' if before else '-',
        tables.timed(row),
        '-' if token is None else tables.seconds(token),
        tables.mebibytes(row.get('resident_delta_bytes')),
      )
    )
  return tables.table(head, lines)


def _plot(found, plots):
  values = {
    name: 1e3 * per_sequence(row)
    for name, row in tables.with_prefix(found, 'training: ').items()
    if per_sequence(row)
  }
  if not values:
    return ''
  return plots.bars('training', values, 'training, ms a sequence of 512 tokens')


def claims(found):
  """A sentence for each claim of the publication, with what was measured."""
  lines = [_speed_claim(found, *claim) for claim in CLAIMS]
  return [*lines, *_memory_claims(found), *_training_claim(found)]


def _speed_claim(found, told, before, after, prefix):
  claimed = PUBLISHED[prefix + before][0] / PUBLISHED[prefix + after][0]
  told = told.format(f'{claimed:.3g}')
  rows = [tables.good(found, prefix + name) for name in (before, after)]
  if None in rows:
    return f'{told}: not measured here.'
  old, new = (row['median'] / row.get('sequences', 1) for row in rows)
  line = f'{told}: {verdict(claimed, old / new)}'
  if prefix == GENERATION:
    line += (
      ' Here both make 100 tokens; the published runs made 100 by full re-run '
      'and 20 stepwise.'
    )
  return line


def verdict(claimed, measured):
  """'confirmed' or 'corrected', with the ratio that was measured."""
  near = abs(measured / claimed - 1) <= NEAR
  word = 'confirmed' if near else 'corrected'
  return f'**{word}**, {measured:.3g} times here.'


def _memory_claims(found):
  """Checkpointing: less memory, as published, and once there is a gradient."""
  names = 'PyTorch, indexed, fused, batch 32', CHECKPOINTED
  claimed, other = (PUBLISHED[f'forward: {name}'][1] for name in names)
  claimed /= other
  ratios = [
    _memory_ratio(found, kind, names) for kind in ('forward', 'training')
  ]
  told = 'Checkpointing divides the peak memory of a forward pass by '
  told += f'{claimed:.3g}: '
  yield told + (
    verdict(claimed, ratios[0]) if ratios[0] else 'not measured here.'
  )
  if ratios[1]:
    yield (
      'Nothing was published on its memory in training, for which it exists: '
      f'it divides the peak by {ratios[1]:.3g} here.'
    )


def _memory_ratio(found, kind, names):
  """Resident growth without over with checkpoints; None if not measured."""
  rows = [tables.good(found, f'{kind}: {name}') for name in names]
  sizes = [(row or {}).get('resident_delta_bytes') for row in rows]
  return sizes[0] / sizes[1] if all(sizes) else None


def _training_claim(found):
  """Checkpointing costs time as soon as there is a backward pass."""
  names = 'PyTorch, indexed, fused, batch 32', CHECKPOINTED
  rows = [tables.good(found, f'training: {name}') for name in names]
  if None not in rows:
    plain, kept = map(per_sequence, rows)
    yield (
      'No backward pass was published for checkpointing, which exists for it: '
      f'a training step with it takes {kept / plain:.3g} times as long here.'
    )
