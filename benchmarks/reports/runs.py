"""Training runs that benchmarks.record_run has added, the newest of a name."""

from benchmarks import tables

HEAD = (
  'run',
  'parameters',
  'steps',
  'tokens',
  'training',
  'tokens/s',
  'held-out split',
  'nats a token',
  'bits per byte',
  'gzip, xz',
  'peak memory',
  'commit',
)


OF_PICTURES = (
  'run',
  'parameters',
  'steps',
  'pictures',
  'training',
  'pictures/s',
  'held-out split',
  'accuracy',
  'nats a picture',
  'peak memory',
  'commit',
)


def cases(rows):
  """A run is a case by its name."""
  return [{**row, 'case': row['name']} for row in rows]


def render(found, plots):
  """Markdown of one machine's runs."""
  del plots
  rows = found.values()
  texts = [_cells(row) for row in rows if not _is_of_pictures(row)]
  pictures = [_cells_of_pictures(row) for row in rows if _is_of_pictures(row)]
  made = [tables.table(HEAD, texts)] if texts else []
  made += [tables.table(OF_PICTURES, pictures)] if pictures else []
  return '\n\n'.join(made)


def _is_of_pictures(row):
  return row['config']['data'].get('layout') == 'images'


def _cells_of_pictures(row):
  held_out = row['held_out']
  return (
    row['name'],
    f'{row["parameters"]:,}',
    f'{row["steps"]:,}',
    f'{row["tokens"]:,}',
    f'{row["seconds"] / 60:.1f} min',
    f'{row["tokens_per_second_median"]:,.0f}',
    held_out['split'],
    f'{held_out["accuracy"]:.4f}',
    f'{held_out["loss"]:.4f}',
    f'{row["peak_memory_bytes"] / 2**20:,.0f} MiB',
    row['commit'],
  )


def _cells(row):
  held_out = row['held_out']
  return (
    row['name'],
    f'{row["parameters"]:,}',
    f'{row["steps"]:,}',
    f'{row["tokens"] / 1e6:.2f} M',
    f'{row["seconds"] / 60:.1f} min',
    f'{row["tokens_per_second_median"]:,.0f}',
    held_out['split'],
    f'{held_out["loss"]:.4f}',
    f'{held_out["bits_per_byte"]:.4f}',
    f'{held_out["gzip"]:.3f}, {held_out["xz"]:.3f}',
    f'{row["peak_memory_bytes"] / 2**20:,.0f} MiB',
    row['commit'],
  )
