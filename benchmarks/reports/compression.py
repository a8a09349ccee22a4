"""A table of compressed models: what each way costs and what it saves."""

from benchmarks import tables

HEAD = (
  'model',
  'zeros in matrices',
  'perplexity',
  'change',
  'checkpoint',
  'times smaller',
  'held while writing',
  'tokens/s',
)


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
    parts.append(tables.table(HEAD, _lines(row['variants'])))
  return '\n\n'.join(parts)


def _lines(variants):
  whole = variants['float32']
  for name, values in variants.items():
    yield [
      name,
      f'{values["zeros"]:.1%}',
      f'{values["perplexity"]:.4f}',
      f'{values["perplexity"] / whole["perplexity"] - 1:+.2%}',
      f'{values["bytes"]:,} bytes',
      f'{whole["bytes"] / values["bytes"]:.2f}',
      f'{values["held_bytes"]:,} bytes',
      tables.rate(values['tokens_per_second']),
    ]
