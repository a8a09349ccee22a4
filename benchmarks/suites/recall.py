"""Answers that small models get right, by the distance of what is asked.

Each case trains one model on one distance, from fresh texts; nothing is timed.
The models have two layers of width 64, of 24,576 to 25,408 weights each.

  python -m benchmarks.run --suite=recall          45 minutes on 2 cores
"""

from typing import Any

from benchmarks.harness import case
from benchmarks.harness import curves as curves_lib
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

MODELS = (
  'SimpleRNN',
  'SimpleRNN, simple',
  'attention, window 32',
  'attention, full',
)
DISTANCES = (16, 64, 256)
STEPS = {'recall': 500, 'copying': 300}
LONGER = 1500  # steps of those that learn associative recall late
PAIRS, SYMBOLS = 4, 8


def cases(quick: bool) -> list[case.Case]:
  """The shortest distance first, associative recall before copying."""
  distances = (4,) if quick else DISTANCES
  trained = [
    _case(source, distance, model, 3 if quick else steps)
    for distance in distances
    for source, steps in STEPS.items()
    for model in MODELS
  ]
  longer = [
    _case('recall', distance, model, 4 if quick else LONGER, ', longer')
    for distance in distances
    for model in ('SimpleRNN', 'attention, full')
  ]
  guessed = [
    case.Case(
      f'recall {distance}: elimination',
      'suites.recall.elimination',
      {'distance': distance},
      repeats=0,
    )
    for distance in distances
  ]
  return [*guessed, *trained, *longer]


def _case(source, distance, model, steps, suffix=''):
  parameters = {
    'model': model,
    'source': source,
    'distance': distance,
    'steps': steps,
  }
  name = f'{source} {distance}: {model}{suffix}'
  return case.Case(name, 'suites.recall.answers', parameters, repeats=0)


def answers(
  model: str, source: str, distance: int, steps: int, seed: int = 0
) -> tables.Row:
  """Trains on fresh texts and counts right answers on held-out ones."""
  from benchmarks.workloads import training

  options = {'pairs': PAIRS, 'distance': distance, 'symbols': SYMBOLS}
  return learn(training.raw_config(model), source, options, steps, seed)


def learn(
  raw: Any, source: str, options: dict[str, int], steps: int, seed: int = 0
) -> tables.Row:
  """As `answers`, of a config's model; `options` are data.synthetic's."""
  from benchmarks.workloads import training

  raw.train.seed = seed
  training.set_steps(raw, steps)
  raw.data.source = source
  synthetic = raw.data.synthetic
  synthetic.update(
    **options,
    seed=seed,
    examples=steps * raw.data.batch_size * 20 // 19 + 20,
  )
  raw.data.splits = (95, 5, 0)
  asked = 6 if source == 'recall' else 2
  length = synthetic.distance + asked * synthetic.pairs + (source != 'recall')
  raw.data.update(length=length, boundaries=(length,))
  if raw.cell.get('window', 0) > length:
    raw.cell.window = 0
  with training.Training(raw) as run:
    values = run.learn(steps)
  return values | {'chance': 1 / synthetic.symbols, 'length': length}


def elimination(distance: int, examples: int = 2000) -> tables.Row:
  """What is right without looking at any key: values given, less those asked.

  Of the values that are left, the most frequent one is the best guess.
  """
  import collections

  from rnn_jax import config as config_lib
  from rnn_jax.data.sources import recall as recall_source
  from rnn_jax.data.text.examples import recall as recall_examples

  synthetic = {
    'pairs': PAIRS,
    'distance': distance,
    'symbols': SYMBOLS,
    'examples': examples,
  }
  data = config_lib.section('data', source='recall', synthetic=synthetic)
  texts = recall_source.load(data)['train']
  right = 0
  for n in range(len(texts)):
    text = texts.read(n).decode()
    left = collections.Counter(text[1 : 2 * PAIRS : 2])
    for answer in recall_examples.ANSWER.findall(text):
      right += left.most_common(1)[0][0] == answer
      left[answer] -= 1
  asked = PAIRS * len(texts)
  share = right / asked
  held_out = {'exact': share, 'accuracy': share, 'tokens': asked}
  return {'weights': 0, 'steps': 0, 'chance': 1 / SYMBOLS, 'held_out': held_out}


TITLES = {'recall': 'Associative recall', 'copying': 'Copying'}
LEARNT = 0.9  # of the answers right


select = tables.newest_of_any_device  # nothing is timed


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Right answers against distance: a table, a plot and what follows."""
  yield tables.provenance(rows)
  measured = {name: row for name, row in rows.items() if 'held_out' in row}
  for source, title in TITLES.items():
    if not (curves := curves_lib.of(measured, source)):
      continue
    distances = sorted({n for curve in curves.values() for n in curve})
    first = [next(iter(curve.values())) for curve in curves.values()]
    yield (
      f'**{title}**: the share of held-out answers right; a letter guessed is '
      f'right in {100 * first[0]["chance"]:.3g} % of cases.'
    )
    lines = [
      [
        model,
        *(f'{row[key]:,}' for key in ('weights', 'steps')),
        *(_cell(curve.get(distance)) for distance in distances),
      ]
      for (model, curve), row in zip(curves.items(), first, strict=True)
    ]
    head = ['model', 'weights', 'steps', *(f'distance {n}' for n in distances)]
    yield tables.table(' | '.join(head), lines)
    if len(distances) > 1:
      series = {
        model: [(n, row['held_out']['exact']) for n, row in curve.items()]
        for model, curve in curves.items()
      }
      labels = 'distance, characters', f'{title}, share right'
      yield plots.lines(source, series, labels, 'linear')
    yield '\n'.join(_outcome(curves))


def _cell(row):
  if row is None:
    return '-'
  held_out = row['held_out']
  exact = f'{100 * held_out["exact"]:.1f} %'
  if abs(held_out['exact'] - held_out['accuracy']) < 1e-9:
    return exact  # an answer is one letter
  return f'{exact} ({100 * held_out["accuracy"]:.1f} % of letters)'


def _outcome(curves):
  """A sentence on each model: up to which distance it has learnt it."""
  for model, curve in curves.items():
    measured = sorted(curve)
    if not curve[measured[0]]['steps']:
      continue  # a guess, without a model
    learnt = [n for n in measured if curve[n]['held_out']['exact'] >= LEARNT]
    missed = [n for n in measured if n not in learnt]
    if not learnt:
      yield f'* {model}: {100 * LEARNT:.0f} % at no distance measured.'
      continue
    text = f'{100 * LEARNT:.0f} % or more at {", ".join(map(str, learnt))}'
    if missed:
      text += f', not at {", ".join(map(str, missed))}'
    yield f'* {model}: {text}.'
