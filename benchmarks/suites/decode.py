"""Decoding: latency, time against the prefix, throughput, cold start.

python -m benchmarks.run --suite=decode
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

PREFIXES = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SHORT = {'prefix': 8, 'new_tokens': 4}
SINGLE = {  # name, workload, parameters, the same in a rehearsal, repeats
  'one step': ('step', {}, {'steps': 20}, 0),
  'whole generation': ('generate', {'way': 'loop'}, SHORT, 50),
  'stepwise from Python': ('generate', {'way': 'stepwise'}, SHORT, 10),
  'cold start, compiling': ('cold_start', {'cached': False}, {}, 3),
  'cold start, compiled before': ('cold_start', {'cached': True}, {}, 3),
}


def cases(quick: bool) -> list[case.Case]:
  """Latency first; batches with the forward pass of training."""
  listed = [
    _case(name, workload, given | small if quick else given, repeats)
    for name, (workload, given, small, repeats) in SINGLE.items()
  ]
  for prefix in PREFIXES[: 2 if quick else None]:
    size = {'prefix': prefix}
    listed.append(_case(f'loop, prefix {prefix}', 'loop', size, 30))
    listed.append(_case(f'prefill, {prefix}', 'prefill', size, 30))
  for batch in BATCHES[: 2 if quick else None]:
    size = {'batch': batch, 'prefix': 64}
    listed.append(_case(f'loop, batch {batch}', 'loop', size))
    size = {'batch': batch, 'sequences': batch, 'length': 32 if quick else 512}
    listed.append(
      case.Case(
        f'forward, batch {batch}', 'workloads.published_model.forward', size
      )
    )
  return listed


def _case(name, workload, parameters, repeats=10):
  return case.Case(name, f'workloads.decoding.{workload}', parameters, repeats)


LATENCY = {
  'least': lambda row: tables.seconds(row['min']),
  'median ± deviation': tables.timed,
  'repeats': lambda row: str(row['repeats']),
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A latency is the least of the repeats, which other work on the machine
  doesn't affect; rates are of medians.
  """
  if single := {name: rows[name] for name in SINGLE if name in rows}:
    yield tables.by_row('what', single, LATENCY)
  if row := tables.good(rows, 'one step'):
    latencies = (f'{n} {tables.seconds(row[n])}' for n in ('p50', 'p95', 'p99'))
    yield (
      'Latency of one step, batch 1, called from Python: least '
      f'{tables.seconds(row["min"])}, {", ".join(latencies)}.'
    )
  yield from _prefixes(rows, plots)
  yield from _batches(rows, plots)


def per_token(row: tables.Row) -> float:
  """The least seconds per new token."""
  return row['seconds_per_token'] * row['min'] / row['median']


def _measured(rows, prefix):
  """{number: row} of the measured cases named '<prefix><number>'."""
  some = tables.with_prefix(rows, prefix)
  return {int(n): row for n, row in some.items() if 'median' in row}


def _prefixes(rows, plots):
  loops = _measured(rows, 'loop, prefix ')
  if not loops:
    return
  reads = _measured(rows, 'prefill, ')
  yield tables.table(
    'prefix | time per new token, least | prefill, tokens/s',
    [
      (
        f'{n:,}',
        tables.seconds(per_token(row)),
        tables.rate(reads.get(n, {}).get('tokens_per_second')),
      )
      for n, row in loops.items()
    ],
  )
  points = [(n, 1e6 * per_token(row)) for n, row in loops.items()]
  labels = ('prefix', 'least µs per new token, batch 1')
  yield plots.lines('prefix', {'one loop': points}, labels)


def _batches(rows, plots):
  decoding, passes = (
    {n: row['tokens_per_second'] for n, row in _measured(rows, kind).items()}
    for kind in ('loop, batch ', 'forward, batch ')
  )
  if not decoding:
    return
  yield tables.table(
    'batch | decoding, tokens/s | forward pass, tokens/s | ratio',
    [
      (
        str(n),
        tables.rate(rate),
        tables.rate(passes.get(n)),
        f'{rate / passes[n]:.3g}' if n in passes else '-',
      )
      for n, rate in decoding.items()
    ],
  )
  yield plots.lines(
    'batch',
    {
      'decoding': [*decoding.items()],
      'forward pass': [(n, passes[n]) for n in decoding if n in passes],
    },
    ('batch', 'tokens/s'),
  )
