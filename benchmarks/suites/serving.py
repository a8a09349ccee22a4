"""The server: throughput, latency, stored states, soaks, exactness, a peer.

Goals are next to what was measured; ratios are of rounds that take turns. Needs
the extra `serve`, and the peer `peers`.

  python -m benchmarks.run --suite=serving
  python -m benchmarks.run --suite=serving --only='soak$'     10,000 requests
"""

from collections.abc import Callable

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

TINY = {'model.layers': 1, 'model.width': 16, 'model.mlp_width': 16}
FLOAT32 = {'train.precision': 'float32'}
CLIENTS = (1, 8, 64)
MIXED = 'throughput, mixed lengths'
EQUAL = 'throughput, equal lengths'
BETWEEN = 'between tokens'
SHORTER = 'between tokens, chunks up to 64'
FIRST = 'first token'
HANDOVER = 'hand-over'
EXACT = 'exactness'
EXACT_INT8 = 'exactness, int8 weights'
EXACT_DRAFTS = 'exactness, drafts'
PARTS = 5  # of its requests, each a case: what is measured isn't lost
SAME = 'texts of the loop'
SAME_FLOAT32 = 'texts of the loop, float32'
READY = 'start to ready'
BESIDE = 'beside a plain server, clients '
STREAMS = 'streams, '
SOAK = 'soak'
LONG_SOAK = 'soak, 30 minutes'
# The workload, parameters, those that differ in a rehearsal, repeats.
CASES = {
  MIXED: (
    'throughput.against_loop',
    {'requests': 512, 'prompts': (16, 256), 'outputs': (32, 256)},
    {'requests': 6, 'slots': 4, 'prompts': (16, 40), 'outputs': (4, 9)},
    3,
  ),
  EQUAL: (
    'throughput.against_loop',
    {'requests': 256, 'prompts': (128, 128), 'outputs': (128, 128)},
    {'requests': 6, 'slots': 4, 'prompts': (16, 16), 'outputs': (8, 8)},
    3,
  ),
  BETWEEN: (
    'latency.between_tokens',
    {'calls': 400},
    {'calls': 20, 'slots': 4, 'prompt': 600},
    5,
  ),
  SHORTER: (
    'latency.between_tokens',
    {'calls': 400, 'chunks': (16, 64)},
    {'calls': 20, 'slots': 4, 'prompt': 600},
    5,
  ),
  FIRST: ('latency.first_token', {}, {'prefix': 512, 'slots': 2}, 30),
  HANDOVER: (
    'handover.to_another_process',
    {'conversations': 100},
    {'conversations': 2, 'new_tokens': 4, 'words': 100},
    0,
  ),
  EXACT: (
    'exact.alone_and_together',
    {'requests': 2000},
    {'requests': 20, 'slots': 4},
    0,
  ),
  EXACT_INT8: (
    'exact.alone_and_together',
    {'requests': 500, 'weights': 'int8'},
    {'requests': 10, 'slots': 4},
    0,
  ),
  **{
    f'{EXACT_DRAFTS}, part {part + 1}': (
      'exact.alone_and_together',
      {
        'requests': 10_000 // PARTS,
        'part': part,
        'longest': 20,
        'slots': 4,  # few enough that rows draft
        'draft_tokens': 4,
        'overrides': FLOAT32,
      },
      {'requests': 4},
      0,
    )
    for part in range(PARTS)
  },
  SAME: (
    'same_texts.beside_loop',
    {'requests': 256},
    {'requests': 6, 'slots': 4},
    0,
  ),
  SAME_FLOAT32: (
    'same_texts.beside_loop',
    {'requests': 256, 'overrides': FLOAT32},
    {'requests': 6, 'slots': 4},
    0,
  ),
  READY: ('over_http.start_to_ready', {}, {}, 3),
  **{
    f'HTTP, clients {n}': (
      'over_http.rate',
      {'clients': n, 'requests': 16 if n == 1 else 8},
      {'clients': min(n, 4), 'requests': 2, 'prompt': 8, 'new_tokens': 4},
      3,
    )
    for n in CLIENTS
  },
  **{
    f'{BESIDE}{n}': (
      'peer.rate',
      {'clients': n, 'requests': requests, 'overrides': FLOAT32},
      {'clients': min(n, 4), 'requests': 2, 'prompt': 8, 'new_tokens': 4},
      3,
    )
    for n, requests in zip(CLIENTS, (16, 8, 2), strict=True)
  },
  **{
    f'{STREAMS}{n}': (
      'streams.read',
      {'streams': n},
      {'streams': min(n, 3)},
      30,
    )
    for n in (1, 1000)
  },
  SOAK: (
    'over_http.soak',
    {'requests': 10_000},
    {'requests': 40, 'clients': 4},
    0,
  ),
  LONG_SOAK: (
    'over_http.soak',
    {'minutes': 30},
    {'minutes': 0.05, 'clients': 4},
    0,
  ),
}


def cases(quick: bool) -> list[case.Case]:
  """Every case; a rehearsal has a smaller model, too."""
  return [
    case.Case(
      name,
      f'workloads.serving.{workload}',
      given | small | _tiny(given) if quick else given,
      min(repeats, 1) if quick else repeats,
      timeout=7200,
    )
    for name, (workload, given, small, repeats) in CASES.items()
  ]


def _tiny(given):
  return {'overrides': given.get('overrides', {}) | TINY}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Goals and figures, then each measurement by itself."""
  good = {name: row for name, row in rows.items() if 'error' not in row}
  good |= _with_drafts(good)
  if sized := [row for row in good.values() if 'state_bytes' in row]:
    yield (
      f'{sized[0]["weights"]:,} weights, drawn and not trained; '
      f'{sized[0]["state_bytes"]:,} bytes of state per conversation.'
    )
  if lines := [line for each in GOALS for line in _goal(each, good)]:
    yield tables.table('what | goal | measured | reached', lines)
  yield from _throughput(rows)
  yield from _latency(rows, plots)
  yield from _clients(rows)
  yield from _streams(rows)
  for name, describe in PARAGRAPHS.items():
    if name in good:
      yield describe(good[name])


Measure = Callable[[tables.Row], float]
Words = Callable[[float], str]


def _percent(share):
  return f'{100 * share:.3g} %'


def _growth(row):
  before, after = (row[key]['resident_bytes'] for key in ('first', 'last'))
  return after / before - 1


def _left(row):
  return max(
    row['last'][key] - row['first'][key] for key in ('threads', 'descriptors')
  )


def _number(count):
  return f'{count:,}'


SOAKS: tuple[tuple[str, str, Measure, float, Words], ...] = (
  ('lost requests', '0', lambda row: row['lost'], 0.0, _number),
  ('wrong answers', '0', lambda row: row['wrong'], 0.0, _number),
  ('growth of memory after the first tenth', '<= 2 %', _growth, 0.02, _percent),
  ('threads or descriptors left', '0', _left, 0.0, _number),
  ('slots left in use', '0', lambda row: row['left_in_slots'], 0.0, _number),
  ('tracebacks', '0', lambda row: row['tracebacks'], 0.0, _number),
)
# Name of the case, what, the goal in words, what is measured, the most that is
# allowed, how it is written.
GOALS: tuple[tuple[str, str, str, Measure, float, Words], ...] = (
  (
    MIXED,
    "throughput, of the loop's",
    '>= .95',
    lambda row: -row['ratio'],
    -0.95,
    lambda ratio: f'{-ratio:.2f}',
  ),
  (
    EQUAL,
    "throughput at equal lengths, of the loop's",
    '>= .9',
    lambda row: -row['ratio'],
    -0.9,
    lambda ratio: f'{-ratio:.2f}',
  ),
  (
    BETWEEN,
    'p99 between tokens while prompts arrive, by the median',
    '<= 3',
    lambda row: row['p99_by_median'],
    3.0,
    tables.digits,
  ),
  (
    BETWEEN,
    'the same, by the median without prompts',
    '<= 3',
    lambda row: row['p99_by_quiet_median'],
    3.0,
    tables.digits,
  ),
  (
    FIRST,
    'first token after a stored beginning, of a cold one',
    '<= 5 %',
    lambda row: row['share'],
    0.05,
    _percent,
  ),
  (
    HANDOVER,
    'conversations that differ in another process',
    '0',
    lambda row: max(row['different'], row['different_from_whole']),
    0.0,
    _number,
  ),
  (
    EXACT,
    'requests that differ among others',
    '0',
    lambda row: row['different'],
    0.0,
    _number,
  ),
  (
    EXACT_INT8,
    'the same with int8 weights',
    '0',
    lambda row: row['different'],
    0.0,
    _number,
  ),
  (
    EXACT_DRAFTS,
    'the same with drafts',
    '0',
    lambda row: row['different'],
    0.0,
    _number,
  ),
  (
    SAME_FLOAT32,
    "texts that differ from the loop's, in float32",
    '0',
    lambda row: row['requests'] - row['same_texts'],
    0.0,
    _number,
  ),
  (
    READY,
    'start to ready, programs kept',
    '<= 5 s',
    lambda row: row['median'],
    5.0,
    tables.seconds,
  ),
  *(
    (name, f'{name}: {what}', *rest)
    for name in (SOAK, LONG_SOAK)
    for what, *rest in SOAKS
  ),
)


def _goal(goal, rows):
  name, what, words, measured, most, write = goal
  if name in rows:
    value = measured(rows[name])
    yield [what, words, write(value), 'yes' if value <= most else 'no']


ENGINE = {
  'engine': tables.timed,
  'loop': lambda row: tables.timed(row['loop']),
  'engine, tokens/s': lambda row: tables.rate(row['tokens_per_second']),
  'loop, tokens/s': lambda row: tables.rate(row['loop_tokens_per_second']),
  'loop, unused too': lambda row: tables.rate(
    row['loop_row_tokens_per_second']
  ),
  'ratio': lambda row: tables.digits(row['ratio']),
  'ratio, unused too': lambda row: tables.digits(row['ratio_with_unused']),
  'slots in use': lambda row: _percent(row['slots_in_use']),
  'same texts': lambda row: (
    f'{row["same_texts"]} of {row["parameters"]["requests"]}'
  ),
}


def _throughput(rows):
  if chosen := tables.with_prefix(rows, 'throughput, '):
    yield tables.by_row('throughput', chosen, ENGINE)


def _gap(kind, key):
  return lambda row: tables.seconds(row[kind][key])


GAPS = {
  'median': _gap('quiet', 'p50'),
  'p99': _gap('quiet', 'p99'),
  'median, prompts arriving': _gap('arriving', 'p50'),
  'p99, prompts arriving': _gap('arriving', 'p99'),
  'longest': _gap('arriving', 'max'),
  'prompts, tokens/s': lambda row: tables.rate(row['read_tokens_per_second']),
}


def _latency(rows, plots):
  chosen = {name: rows[name] for name in (BETWEEN, SHORTER) if name in rows}
  if not chosen:
    return
  yield tables.by_row('what', chosen, GAPS)
  bars = {
    f'{name}, {kind}: {key}': 1e3 * row[kind][key]
    for name, row in chosen.items()
    if 'error' not in row
    for kind in ('quiet', 'arriving')
    for key in ('p50', 'p99')
  }
  if bars:
    yield plots.bars('between_tokens', bars, 'ms between tokens')


def _clients(rows):
  if chosen := tables.with_prefix(rows, 'HTTP, clients '):
    columns = {
      'a round': tables.timed,
      'tokens/s': lambda row: tables.rate(row['tokens_per_second']),
    }
    yield tables.by_row('clients', chosen, columns)
  if chosen := tables.with_prefix(rows, BESIDE):
    yield tables.by_row('clients', chosen, PLAIN)


PLAIN = {
  'ours, a round': tables.timed,
  'plain, a round': lambda row: tables.timed(row['plain']),
  'ours, tokens/s': lambda row: tables.rate(row['tokens_per_second']),
  'plain, tokens/s': lambda row: tables.rate(row['plain_tokens_per_second']),
  'times': lambda row: tables.digits(row['ratio']),
}


def _streams(rows):
  if chosen := tables.with_prefix(rows, STREAMS):
    columns = {
      'a reading of each': tables.timed,
      'readings/s': lambda row: tables.rate(row['readings_per_second']),
      'bytes of state': lambda row: _number(row['stream_bytes']),
    }
    yield tables.by_row('streams of series', chosen, columns)


def _first(row):
  return (
    f'First token after {row["parameters"].get("prefix", 4096):,} stored '
    f'tokens: {tables.timed(row)}; cold {tables.timed(row["cold"])}.'
  )


def _handover(row):
  return (
    f'Hand-over: {row["conversations"]:,} conversations, {row["tokens"]:,} '
    f'tokens, {row["different"]:,} differ from the same process, '
    f'{row["different_from_whole"]:,} from reading the whole conversation; '
    f'{row["bytes"]:,} bytes per conversation, signature included.'
  )


def _exact(row):
  return (
    f'Exactness: {row["requests"]:,} requests and {row["tokens"]:,} tokens by '
    f'themselves and among {row["others"]:,} others, of which '
    f'{row["cancelled"]:,} were cancelled: {row["different"]:,} differences; '
    f'{row["cached_tokens"]:,} of {row["prompt_tokens"]:,} prompt tokens came '
    'from stored states.'
  )


def _with_drafts(rows):
  """Returns the parts of the case with drafts as one row, if all are there."""
  names = (f'{EXACT_DRAFTS}, part {part + 1}' for part in range(PARTS))
  parts = [rows.get(name) for name in names]
  if None in parts:
    return {}
  counts = {name: x for name, x in parts[0].items() if isinstance(x, int)}
  return {EXACT_DRAFTS: {n: sum(part[n] for part in parts) for n in counts}}


def _same(row, label='The loop writes the same texts'):
  text = f'{label}: {row["same_texts"]:,} of {row["requests"]:,}.'
  if 'largest_gap' in row:
    text += (
      ' Where the others part, the draw is within '
      f'{row["largest_gap"]:.1e} of the border between the two tokens, and two '
      "programs' log-probabilities of one token differ by up to "
      f'{row["largest_change"]:.1e}.'
    )
  return text


def _ready(row):
  return (
    f'Start to ready: {tables.timed(row)}; '
    f'{tables.seconds(row["cold_seconds"])} when it compiles.'
  )


def _soak(row, label='Soak'):
  outcomes = ', '.join(
    f'{count:,} {kind}' for kind, count in sorted(row['outcomes'].items())
  )
  first, last = row['first'], row['last']
  faults = ''.join(f' {fault}.' for fault in row['faults'])
  return (
    f'{label}: {row["requests"]:,} requests in '
    f'{tables.seconds(row["seconds"])}, '
    f'{row["tokens"]:,} tokens: {outcomes}; {row["lost"]:,} lost, '
    f'{row["wrong"]:,} wrong, {row["tracebacks"]:,} tracebacks, '
    f'{row["left_in_slots"]:,} left in slots. Memory '
    f'{tables.mebibytes(first["resident_bytes"])} after a tenth and '
    f'{tables.mebibytes(last["resident_bytes"])} after all, threads '
    f'{first["threads"]} and {last["threads"]}, descriptors '
    f'{first["descriptors"]} and {last["descriptors"]}; exit code '
    f'{row["exit_code"]} after SIGTERM.{faults}'
  )


PARAGRAPHS = {
  FIRST: _first,
  HANDOVER: _handover,
  EXACT: _exact,
  EXACT_INT8: lambda row: _exact(row).replace(
    'Exactness', 'Exactness, int8 weights'
  ),
  EXACT_DRAFTS: lambda row: (
    _exact(row).replace('Exactness', 'Exactness, drafts among others')
    + f' {row["draft_tokens"]:,} tokens of a row took '
    f'{row["draft_runs"]:,} runs of the model.'
  ),
  SAME: _same,
  SAME_FLOAT32: lambda row: _same(row, 'In float32'),
  READY: _ready,
  SOAK: _soak,
  LONG_SOAK: lambda row: _soak(row, 'Soak of 30 minutes'),
}
