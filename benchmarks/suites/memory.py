"""Memory of a Transformer's training step, technique by technique.

ChatGoT's small and gpt2 sizes at the batches that were published, and the
decoder of the memory laboratory: compiled and not run, arguments and
temporaries by XLA. 'whole' has all logits at once, as a plain loss does; the
others take them in blocks, as training here always does.

  python -m benchmarks.run --suite=memory          6 minutes on 2 cores
"""

from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

MODELS = {  # a file of configs/, the argument of its get_config, rows
  'small': ('chatgot', 'small', 256),
  'gpt2': ('chatgot', 'gpt2', 32),
  'decoder': ('memory_lab', '', 64),
}
EXACT = {'recurrence.impl': 'exact'}
EIGHT_BIT = {'optimizer.moments': 'int8'}
CHECKPOINTS = {'remat.layers': 1}
BOTH = EIGHT_BIT | CHECKPOINTS
FLASH = {'recurrence.impl': 'blocked'}
PAIR = '8-bit, checkpoints'
TECHNIQUES = {
  'plain, whole': EXACT,
  f'{PAIR}, whole': EXACT | BOTH,
  'plain': EXACT,
  '8-bit': EXACT | EIGHT_BIT,
  'checkpoints': EXACT | CHECKPOINTS,
  'flash': FLASH,
  PAIR: EXACT | BOTH,
  f'{PAIR}, flash': BOTH | FLASH,
  f'{PAIR}, flash, low_memory': BOTH | FLASH | {'train.compiler': 'low_memory'},
}
# Against its own baseline on a card of 4 GB: published, per cent saved.
PUBLISHED = {'small': 64.8, 'gpt2': 78.1}


def cases(quick: bool) -> list[case.Case]:
  """Each technique on each model."""
  models = {'tiny': ('chatgot', 'tiny', 2)} if quick else MODELS
  return [
    case.Case(
      f'{model}: {name}',
      'suites.memory.step_memory',
      {
        'config': [config, argument, overrides],
        'batch': batch,
        'whole': name.endswith('whole'),
      },
      repeats=0,
    )
    for model, (config, argument, batch) in models.items()
    for name, overrides in TECHNIQUES.items()
  ]


def step_memory(
  config: list[Any], batch: int, whole: bool = False
) -> tables.Row:
  """Bytes of a training step by the compiler; nothing runs.

  Args:
    config: arguments of configs.parse.
    batch: rows.
    whole: whether all logits are held at once.
  """
  import time
  import types

  import jax

  from benchmarks.workloads import configs
  from rnn_jax.ops import cross_entropy
  from rnn_jax.parallel import mesh as mesh_lib
  from rnn_jax.system import target
  from rnn_jax.tasks import language_modeling
  from rnn_jax.training import programs as programs_lib
  from rnn_jax.training.memory import batch_size

  parsed = configs.parse(*config)
  if whole:
    cross_entropy.BLOCK[jax.default_backend()] = 2**62
  tokens = types.SimpleNamespace(size=parsed.data.vocabulary, lossless=False)
  task = language_modeling.Task(parsed, tokens)
  programs = programs_lib.Programs(task, parsed, mesh_lib.make())
  begin = time.perf_counter()
  program = programs.compile_train(batch, parsed.data.length)
  seconds = time.perf_counter() - begin
  needed = target.memory(program)
  params, optimizer = batch_size.state_bytes(programs)
  return {
    'weights': params // 4,
    'parameter_bytes': params,
    'optimizer_bytes': optimizer,
    'argument_bytes': needed.arguments,
    'temp_bytes': needed.temporaries,
    'total_bytes': needed.total,
    'compile_seconds': seconds,
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table for each model, and what each technique saves."""
  for size in dict.fromkeys(name.partition(':')[0] for name in rows):
    chosen = tables.with_prefix(rows, f'{size}: ')
    totals = {name: row.get('total_bytes') for name, row in chosen.items()}
    yield f'**{size}**'
    yield tables.by_row(
      'technique', chosen, _columns(totals.get('plain, whole'))
    )
    yield _claim(size, totals)


def _columns(plain):
  def mebibytes(key):
    return lambda row: f'{row[f"{key}_bytes"] / 2**20:,.0f} MiB'

  return {
    'optimizer': mebibytes('optimizer'),
    'arguments': mebibytes('argument'),
    'temporaries': mebibytes('temp'),
    'total': mebibytes('total'),
    'saved': lambda row: (
      f'{1 - row["total_bytes"] / plain:.1%}' if plain else '-'
    ),
  }


def _claim(size, totals):
  """The published saving and ours, and which part made it; or ''."""
  parts = PAIR.split(', ')
  needed = ('plain, whole', f'{PAIR}, whole', 'plain', PAIR, *parts)
  if size not in PUBLISHED or not all(map(totals.get, needed)):
    return ''
  saved = {name: 1 - totals[name] / totals['plain, whole'] for name in needed}
  whole, claimed = saved[f'{PAIR}, whole'], PUBLISHED[size]
  verdict = 'corrected'
  if abs(100 * whole / claimed - 1) <= tables.NEAR:
    verdict = 'confirmed'
  apart = ', '.join(f'{part}: {saved[part]:.1%}' for part in parts)
  return (
    f'Claim: 8-bit moments and checkpoints save {claimed} % of the {size} '
    f'size: **{verdict}**, {whole:.1%} here with all logits at once, as there; '
    f'{saved[PAIR]:.1%} with the loss in blocks too. One at a time, {apart}.'
  )
