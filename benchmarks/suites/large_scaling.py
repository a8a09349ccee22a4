"""1.3B steps on 8, 64 and 512 GPUs: compiled, and predicted from their kernels.

65,536 tokens a GPU. Parameters are sharded over the 8 GPUs of a node (fsdp);
beside that with heads shared by two (tensor), and with rows shared by two
(sequence; the delta rule can't be, Mamba-2 can). What is sent, and what is
computed while it travels, is read from the program
(rnn_jax/planning/step_time.py). Nothing runs.

  python -m benchmarks.run --suite=large_scaling

It needs the packages of cuda12 or cuda13, and no GPU.
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import calibration
from benchmarks.suites import large

COUNTS = (8, 64, 512)
DELTA, STATE_SPACE = 'gated_deltanet_1b3', 'mamba2_1b3'


def cases(quick: bool) -> list[case.Case]:
  """Each mesh at each number of GPUs, the smallest first."""
  listed = [
    large.predicted(name, f': {_name(mesh)}', mesh, quick)
    for count in (COUNTS[:1] if quick else COUNTS)
    for name, mesh in _meshes(count)
  ]
  return listed[: 1 if quick else None]


def _meshes(count):
  """Yields (config, mesh) of so many GPUs."""
  yield DELTA, {'data': count // 8, 'fsdp': 8}
  yield DELTA, {'data': count // 8, 'fsdp': 4, 'tensor': 2}
  yield STATE_SPACE, {'data': count // 8, 'fsdp': 8}
  yield STATE_SPACE, {'data': count // 8, 'fsdp': 4, 'sequence': 2}


def _name(mesh):
  return ', '.join(f'{axis} {size}' for axis, size in mesh.items())


select = tables.newest_of_any_device  # nothing is timed


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table of each config."""
  del plots
  yield calibration.sentence()
  from benchmarks.harness import rows as rows_lib

  selected = large.select(rows_lib.read('large'))
  alone = next(iter(selected.values()), {})
  for name in (DELTA, STATE_SPACE):
    some = {
      mesh: row | {'alone': alone.get(name)}
      for mesh, row in tables.with_prefix(rows, f'{name}: ').items()
      if 'predicted' in row
    }
    if some:
      yield f'**{name}**, 65,536 tokens a GPU, {large.TARGET}: predicted.'
      yield tables.by_row('mesh', some, COLUMNS)


def _sent(row):
  return ', '.join(
    f'{part["opcode"]} {"+".join(part["axes"])} {part["bytes"] / 1e6:,.0f} MB'
    for part in row['sent']
    if part['bytes'] >= 1e6
  )


def _hidden(row):
  sending = sum(row['step']['sending'].values())
  exposed = sum(row['step']['exposed'].values())
  return f'{1 - exposed / sending:.0%}' if sending else '-'


def _efficiency(row):
  alone = row['alone']
  if not alone or 'predicted' not in alone:
    return '-'
  return f'{large.rate(row) / large.rate(alone):.1%}'


COLUMNS = {
  'GPUs': lambda row: f'{row["devices"]}',
  'memory': lambda row: f'{row["memory"]["total"] / 2**30:.1f} GiB',
  'each sends': _sent,
  'sending': lambda row: tables.seconds(sum(row['step']['sending'].values())),
  'hidden': _hidden,
  'step': lambda row: tables.seconds(large.seconds(row)),
  'tokens/s of a GPU': lambda row: tables.rate(large.rate(row)),
  'efficiency': _efficiency,
}
