"""Memory of a Transformer's training step by technique, and what each saves."""

from benchmarks import tables

# Against its own baseline on a card of 4 GB: published, per cent saved.
PUBLISHED = {'small': 64.8, 'gpt2': 78.1}
PAIR = '8-bit, checkpoints'
MIB = 2**20


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  sizes = dict.fromkeys(case.partition(':')[0] for case in found)
  parts = [tables.provenance(found)]
  for size in sizes:
    rows = tables.with_prefix(found, f'{size}: ')
    parts += [f'**{size}**', _table(rows), *_claim(size, rows)]
  return '\n\n'.join(parts)


def _table(rows):
  plain = rows['plain, whole'].get('total_bytes')
  lines = []
  for name, row in rows.items():
    if 'total_bytes' not in row:
      lines.append([name, tables.short(row), '-', '-', '-', '-'])
      continue
    sizes = [
      f'{row[f"{key}_bytes"] / MIB:,.0f} MiB'
      for key in ('optimizer', 'argument', 'temp', 'total')
    ]
    saved = f'{1 - row["total_bytes"] / plain:.1%}' if plain else '-'
    lines.append([name, *sizes, saved])
  heads = ['technique', 'optimizer', 'arguments', 'temporaries', 'total']
  return tables.table([*heads, 'saved'], lines)


def _claim(size, rows):
  """The published saving beside ours, with either form of the loss."""
  published = PUBLISHED.get(size)
  totals = {name: row.get('total_bytes') for name, row in rows.items()}
  needed = ('plain, whole', f'{PAIR}, whole', 'plain', PAIR)
  if published is None or not all(totals.get(name) for name in needed):
    return
  whole = 1 - totals[f'{PAIR}, whole'] / totals['plain, whole']
  blocks = 1 - totals[PAIR] / totals['plain, whole']
  verdict = 'confirmed' if 100 * whole >= published else 'corrected'
  yield (
    f'Claim: 8-bit moments and checkpoints save {published} % of the {size} '
    f'size: **{verdict}**, {whole:.1%} here with all logits at once, as there; '
    f'{blocks:.1%} with the loss in blocks besides.'
  )
