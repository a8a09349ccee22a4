"""Tables of compressed models: what each way costs and what it saves."""

import statistics

from benchmarks import tables

HEAD = (
  'model',
  'zeros in matrices',
  'perplexity',
  'change',
  'parameters on the disk',
  'times smaller',
  'held while writing',
  'tokens/s',
)


SLOW = 0.5  # of the rate of models of as many bytes: something else ran


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  parts = [tables.provenance(found)]
  for name, row in found.items():
    if name.startswith('reference'):
      continue
    if 'variants' not in row:
      parts.append(f'{name}: {tables.short(row)}')
      continue
    parts += [f'**{name}**', tables.table(HEAD, _lines(row))]
  parts.append(tables.unmeasured('compression', found))
  return '\n\n'.join(part for part in parts if part)


def _lines(row):
  variants = row['variants']
  whole = variants['float32']
  for name, values in variants.items():
    # Before rows said what their bytes are of, these held the optimizer too.
    known = 'bytes_of' in row or not name.endswith('trained on')
    yield [
      name,
      f'{values["zeros"]:.1%}',
      f'{values["perplexity"]:.4f}',
      f'{values["perplexity"] / whole["perplexity"] - 1:+.2%}',
      f'{values["bytes"]:,} bytes' if known else '-',
      f'{whole["bytes"] / values["bytes"]:.2f}' if known else '-',
      f'{values["held_bytes"]:,} bytes',
      _rate(values, variants),
    ]


def _rate(values, variants):
  """Tokens a second; marked where models of as many bytes are far faster."""
  rates = [
    other['tokens_per_second']
    for other in variants.values()
    if other['held_bytes'] == values['held_bytes']
  ]
  own = values['tokens_per_second']
  slow = own < SLOW * statistics.median(rates)
  return tables.rate(own) + (' (disturbed)' if slow else '')
