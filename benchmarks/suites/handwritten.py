"""Operations written by hand, compared with what XLA makes of the plain ones.

One is in the package only where its row shows a gain: norm, activation and
dropout in one operation; experts in blocks of their own rows; the loss of
answers without other steps' logits.

  python -m benchmarks.run --suite=handwritten
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

RATE = 0.1
SHAPES = ([32, 256, 192], [32, 256, 1024])  # B, L, D
CHAINS = 'modules', 'checkpoint', 'by hand'
TOKENS, WIDTHS = 8192, [192, 384]  # D and F
COUNTS = ([8, 2], [32, 2])  # E and J
EXPERTS = 'one MLP', 'routed', 'ragged_dot'
HEAD = [32, 64, 128, 8192]  # B, L, D, V
LOSSES = 'all logits', 'blocks', 'answers only'
PLAIN = {'norm': CHAINS[0], 'loss': LOSSES[0]}  # by a group's first word


def cases(quick: bool) -> list[case.Case]:
  """Each form of each operation at each size."""
  return [*_chains(quick), *_experts(quick), *_losses(quick)]


def _chains(quick):
  for shape in SHAPES:
    named = f'norm, gelu, dropout of {"x".join(map(str, shape))}: '
    size = [2, 8, 16] if quick else shape
    for form in CHAINS:
      yield case.Case(
        named + form,
        'workloads.handwritten.norm_dropout',
        {'shape': size, 'form': form, 'rate': RATE},
        base=named + CHAINS[0],
      )


def _experts(quick):
  tokens, widths = (32, [8, 16]) if quick else (TOKENS, WIDTHS)
  for count, chosen in COUNTS:
    named = f'{chosen} of {count} experts, {TOKENS:,} tokens: '
    for form in EXPERTS:
      yield case.Case(
        named + form,
        'workloads.handwritten.experts',
        {
          'tokens': tokens,
          'widths': widths,
          'counts': [count, chosen],
          'form': form,
        },
        base=named + EXPERTS[0],
      )


def _losses(quick):
  for every in (1, 20):
    which = f'1 step in {every}' if every > 1 else 'every step'
    named = f'loss of {which} of 32x64, 8,192 outputs: '
    for form in LOSSES:
      yield case.Case(
        named + form,
        'workloads.handwritten.answers',
        {'shape': [2, 8, 16, 32] if quick else HEAD, 'every': every}
        | {'form': form},
        base=named + LOSSES[0],
      )


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Time and temporaries of each form, relative to the plain one."""

  def relative(row):
    group = row['case'].rpartition(': ')[0]
    plain = PLAIN.get(group.partition(' ')[0], EXPERTS[0])
    return tables.relative(row, tables.good(rows, f'{group}: {plain}'))

  yield tables.by_row(
    'operation',
    rows,
    {
      'forward and backward': tables.timed,
      'relative': relative,
      'XLA temporaries': lambda row: tables.mebibytes(row['temp_bytes']),
    },
  )
  yield tables.unmeasured(cases(False), rows)
