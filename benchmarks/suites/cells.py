"""All cells at one number of weights: loss, speed, memory, latency, recall.

The model is that of `text`, on the first data set of harness/datasets.py; the
reference is SimpleRNN, and every other cell gets the width at which the model
comes nearest to as many weights. Each trains for as many steps on the same
batches, and learns associative recall at one distance, with two rates: the
config's, which a case doesn't name, and a lower one. OWN holds what a cell is
given besides.

  BENCHMARK_DATA=tiny_shakespeare=PATH/input.txt \\
      python -m benchmarks.run --suite=cells       2 hours on 2 cores
"""

import bisect
import functools
import math
import operator
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import datasets
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

SIZES = {  # the option that sets a cell's width
  'simple_rnn': '',  # the reference
  'lstm': 'state_width',
  'gru': 'state_width',
  'min_lstm': 'state_width',
  'rhn': 'state_width',
  'qrnn': 'state_width',
  'attention': 'head_width',
  'latent_attention': 'kv_rank',
  'bdh, normed': 'neurons',
  'retnet': 'value_width',
  'gla': 'value_width',
  'hgrn2': 'value_width',
  'mamba2': 'value_width',
  'mamba': 'inner_width',
  'mlstm': 'value_width',
  'rg_lru': 'head_width',
  'deltanet': 'value_width',
  'gated_deltanet': 'value_width',
  'kda': 'value_width',
  'rwkv7': 'value_width',
  'gated_deltanet, hybrid': 'gated_deltanet.value_width',
}
REFERENCE = 'simple_rnn'
# BDH is norms around a sum. Its state forgets nothing: carried along, it would
# keep pairs of characters of the whole text.
OWN = {
  'bdh, normed': {
    'model.block': 'normed',
    'model.norm': 'standard',
    'model.mlp_width': 0,
    'data.carry_state': False,
  },
  'gated_deltanet, hybrid': {
    'model.cell': REFERENCE,  # the default, as `cells` says which
    'model.cells': ['gated_deltanet', 'gated_deltanet', 'attention'],
    'model.layers': 3,
    # Narrow, so that enough weights are left for the size.
    'cell.attention.head_width': 16,
    'cell.gated_deltanet.heads': 2,
    'cell.gated_deltanet.key_width': 16,
  },
}
RATES = (3e-3, 1e-3)  # the configs' own, and another
STEPS = 400
RECALL_STEPS = 500
DISTANCE = 16
QUICK = {'data.length': 16, 'data.batch_size': 2, 'model.width': 32}

CHARACTERS = 65  # of Tiny Shakespeare; that many weights all models have more
WIDEST = 4096
SAMPLED = (5, 17, 41)  # sizes by which the number of weights is estimated
POINTS = 20  # of a curve of losses


def cases(quick: bool) -> list[case.Case]:
  """Training, decoding and recall of each cell."""
  return [one for name in SIZES for one in _of_cell(name, quick)]


def _of_cell(name, quick):
  model = {'cell': name.partition(',')[0], 'size': SIZES[name]}
  train = {'data': datasets.names()[0], 'steps': 3 if quick else STEPS}
  recall = {
    'distance': 4 if quick else DISTANCE,
    'steps': 3 if quick else RECALL_STEPS,
  }
  few = {'steps': 20} if quick else {}
  if quick:
    train['limit'] = 200
  for what, parameters, rates in (
    ('training', train, RATES),
    ('decoding', few, RATES[:1]),
    ('recall', recall, RATES),
  ):
    for rate in rates[:1] if quick else rates:
      small = QUICK if quick and what == 'training' else {}
      overrides = OWN.get(name, {}) | small
      if what == 'recall':  # whose rows are whole examples
        overrides.pop('data.carry_state', None)
      label = f'{name}: {what}'
      if rate != RATES[0]:
        overrides['optimizer.learning_rate'] = rate
        label += f', {rate:g}'
      given = {'model': model | {'overrides': overrides}, **parameters}
      yield case.Case(label, f'suites.cells.{what}', given, repeats=0)


def training(
  model: tables.Row, data: str, steps: int, limit: int = 0
) -> tables.Row:
  """Trains on a data set of harness/datasets.py; losses, seconds, bytes.

  `model` is as for `sized`. The learning rate's schedule ends with `steps`.
  """
  import tempfile

  from benchmarks.workloads import published_model
  from benchmarks.workloads import training as training_lib
  from rnn_jax.system import target

  raw = sized(text, **model)
  raw.train.steps = steps
  raw.schedule.warmup_steps = min(raw.schedule.warmup_steps, steps // 2)
  with tempfile.TemporaryDirectory() as folder:
    raw.data.update(datasets.overrides(data, folder, limit))
    with training_lib.Training(raw) as run:
      done = [run.step() for _ in range(steps)]
      held_out = run.evaluate()
  # The first step compiles.
  values = measure.summarize([x.waiting + x.seconds for x in done[1:]])
  rows, length = run.config.data.batch_size, run.config.data.length
  program = run.programs.compile_train(rows, length)
  return {
    **values,
    **_size(raw, model),
    'curve': _curve([x.sums['loss'] / x.sums['weight'] for x in done]),
    'held_out': held_out,
    'weights': published_model.count(run.params),
    'tokens_per_second': rows * length / values['median'],
    'temp_bytes': target.memory(program).temporaries,
  }


def _curve(losses):
  """POINTS of [step, mean of the losses since the point before]."""
  every = -(-len(losses) // POINTS)
  return [
    [end, math.fsum(losses[end - every : end]) / every]
    for end in range(every, len(losses) + 1, every)
  ]


def decoding(model: tables.Row, steps: int = 1000) -> tables.Row:
  """Latency of one step of one row, called from Python; bytes of its state."""
  from benchmarks.workloads import decoding as decoding_lib

  raw = sized(text, **model)
  return decoding_lib.latency_of(raw, steps) | _size(raw, model)


def recall(model: tables.Row, distance: int, steps: int) -> tables.Row:
  """Right answers of associative recall, as suite recall counts them."""
  from benchmarks.suites import recall as recall_suite
  from configs import recall as recall_config

  raw = sized(recall_config.get_config, **model)
  values = recall_suite.learn(raw, 'recall', {'distance': distance}, steps)
  return values | _size(raw, model)


def text(cell: str) -> Any:
  """configs/tiny_shakespeare.py, shallower and wider, for few steps."""
  from configs import tiny_shakespeare

  raw = tiny_shakespeare.get_config(cell)
  raw.model.update(layers=3, unroll=3, width=256, mlp_width=512, dropout=0.1)
  if cell == REFERENCE:
    raw.cell.value_width = 64
  raw.data.segment_tokens = 8192
  raw.optimizer.update(weight_decay=0.1, ema_decay=0.0)
  return raw


def _size(raw, model):
  size = model['size']
  return {'size': operator.attrgetter(size)(raw.cell) if size else 0}


def sized(
  get_config: Callable[[str], Any],
  cell: str,
  size: str,
  overrides: tables.Row | None = None,
) -> Any:
  """A config whose model has as many weights as the reference's.

  Args:
    get_config: of a file of configs/, which takes a cell.
    cell: a file of rnn_jax/cells.
    size: the option of the cell to search for, in section `cell`; empty: it is
      the reference.
    overrides: {'section.key': value} of this cell's config; only 'model.width'
      also applies to the reference.

  Raises:
    RuntimeError: no width of the cell comes within 3 %.
  """

  from rnn_jax import config as config_lib

  overrides = overrides or {}
  shared = {key: overrides[key] for key in overrides if key == 'model.width'}

  def config(cell, value=0, overrides=overrides):
    raw = get_config(cell)
    config_lib.override(raw, overrides)
    if value:
      # As wide as the model, a cell would lose its output matrix.
      same = size == 'state_width' and value == raw.model.width
      config_lib.override(raw, {f'cell.{size}': value + same})
    return raw

  if not size:
    return config(cell)
  wanted = weights(config(REFERENCE, overrides=shared))
  even = 2 if config(cell).cell.get('rotary', 0) else 1

  @functools.cache
  def count(n):
    return weights(config(cell, even * n))

  best = _nearest(count, wanted)
  if abs(count(best) - wanted) > 0.03 * wanted:
    raise RuntimeError(f'{cell}: {count(best):,} weights, not about {wanted:,}')
  return config(cell, even * best)


def _nearest(count, wanted):
  """The size up to WIDEST whose count, which grows with it, is nearest.

  To count is slow, as it traces a model. The sides of a cell's matrices are
  fixed or multiples of its size, so that three counts give a parabola, which
  says between which two sizes to look. If these two don't confirm it, all sizes
  are searched.
  """
  import numpy as np

  counts = [count(n) for n in SAMPLED]
  line = np.polynomial.Polynomial.fit(SAMPLED, counts, 2)
  sizes = range(1, WIDEST + 1)
  low = bisect.bisect_left(sizes, wanted, key=line)
  if not 0 < low < WIDEST or not count(low) < wanted <= count(low + 1):
    low = bisect.bisect_left(sizes, wanted, key=count)
  near = sizes[max(0, low - 1) : low + 1]
  return min(near, key=lambda n: abs(count(n) - wanted))


def weights(raw: Any) -> int:
  """The number of weights of a config's language model, without its
  vocabulary's; nothing is computed.
  """
  import jax

  from rnn_jax import config as config_lib
  from rnn_jax.models import language_model

  model = language_model.from_config(config_lib.parse(raw), CHARACTERS)
  tokens = jax.ShapeDtypeStruct((1, 1), 'int32')
  state = jax.eval_shape(lambda: model.apply({}, 1, method='init_state'))
  shapes = jax.eval_shape(model.init, jax.random.key(0), state, tokens)
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


WHAT = ('training', 'decoding', 'recall')
HEAD = (
  'cell | its width | weights | rate | nats, held out | at the other rate | '
  'tokens/s | temporaries of a step | latency per token, least | '
  'state per row | recall, right'
)


SPEEDS = ('tokens_per_second', 'temp_bytes', 'min', 'median', 'floor')


def select(rows: Iterable[tables.Row]) -> dict[str, tables.Rows]:
  """The newest rows of any machine, with speeds only of the last one.

  What a model learns from the same batches doesn't depend on the machine.
  """
  rows = [*rows]
  last = {
    platform: {row['device'] for row in some.values()}
    for platform, some in tables.newest(rows).items()
  }
  return {
    platform: {
      name: row
      if row['device'] in last[platform]
      else {key: row[key] for key in row if key not in SPEEDS}
      for name, row in some.items()
      if name.partition(': ')[0] in SIZES
    }
    for platform, some in tables.newest(rows, of_one_device=False).items()
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table of all measures, and curves of losses.

  Of two learning rates the better one counts, for each measure its own.
  """
  by_cell = grouped(rows)
  yield tables.provenance(rows)
  yield _setting(rows)
  yield _spread(by_cell)
  yield tables.table(HEAD, [_line(*pair) for pair in by_cell.items()])
  losses = {
    cell: [(step, loss) for step, loss in best['curve']]
    for cell, kinds in by_cell.items()
    if (best := _best(kinds['training'], _loss)).get('curve')
  }
  if losses:
    labels = 'steps', 'training loss, nats per character'
    yield plots.losses('loss', losses, labels)
  unmeasured = [one for one in SIZES if f'{one}: training' not in rows]
  if unmeasured:
    yield f'Not measured yet: {", ".join(unmeasured)}.'


def grouped(
  rows: tables.Rows,
) -> dict[str, dict[str, dict[float, tables.Row]]]:
  """{cell: {one of WHAT: {rate: row}}} of '<cell>: <what>[, <rate>]'."""
  by_cell = {}
  for name, row in rows.items():
    cell, _, rest = name.partition(': ')
    what, _, rate = rest.partition(', ')
    if what in WHAT:
      kinds = by_cell.setdefault(cell, {what: {} for what in WHAT})
      if 'error' not in row:
        kinds[what][float(rate or RATES[0])] = row
  return by_cell


def _best(rows, key):
  """The row of least `key`; {} of none."""
  return min(rows.values(), key=key, default={})


def _loss(row):
  return row['held_out']['loss']


def _setting(rows):
  """What each was given, a sentence; or ''."""
  given = []
  for what, words in (
    ('training', '{steps} steps on {data}'),
    ('recall', '{steps} steps of associative recall at distance {distance}'),
  ):
    same = [row for name, row in rows.items() if name.endswith(what)]
    given += [words.format(**row['parameters']) for row in same[:1]]
  return f'Each cell: {", and ".join(given)}.' if given else ''


def _spread(by_cell):
  """How far medians of latencies lie from the least, a sentence; or ''."""
  apart = [
    row['median'] / row['min']
    for kinds in by_cell.values()
    for row in kinds['decoding'].values()
    if 'median' in row
  ]
  if not apart:
    return ''
  return (
    f'Medians of the latencies are {min(apart):.2g} to {max(apart):.2g} times '
    'the least ones, which are shown.'
  )


def _line(cell, kinds):
  best = _best(kinds['training'], _loss)
  recalled = _best(kinds['recall'], lambda row: -row['held_out']['exact'])
  decoded = next(iter(kinds['decoding'].values()), {})
  rates = {rate: _loss(row) for rate, row in kinds['training'].items()}
  rate = min(rates, key=rates.get, default=None)
  others = [f'{r:g}: {loss:.3f}' for r, loss in rates.items() if r != rate]
  trained = kinds['training'].values()
  speeds = [row['tokens_per_second'] for row in trained if 'median' in row]
  return [
    cell,
    str(best.get('size') or '-'),
    f'{best["weights"]:,}' if best else '-',
    f'{rate:g}' if rates else '-',
    f'{_loss(best):.3f}' if best else '-',
    ', '.join(others) or '-',
    tables.rate(max(speeds, default=None)),
    tables.mebibytes(best.get('temp_bytes')),
    tables.seconds(decoded['min']) if 'min' in decoded else '-',
    f'{decoded["state_bytes"] / 1024:,.1f} KiB' if decoded else '-',
    f'{100 * recalled["held_out"]["exact"]:.1f} %' if recalled else '-',
  ]
