"""What users type first: fine-tuning, grids, modules of their own, exports.

Orders of flags that mean the same must do the same, and what is wrong is one
line with a remedy that works.
"""

import itertools
import json
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands
from tests.faults import given

CELL = 'tests.support.own.average'
GRID = '''"""A grid."""

from rnn_jax.experiments import grid


def get_grid():
  return grid.Grid(
    title='One variant',
    config={config!r},
    variants={{{name!r}: {{}}}},
    metrics=(('loss', 'lower', 'loss'),),
    seeds=(0,),
  )
'''


def steps(shared: base.Base) -> Iterator[commands.Attempt]:
  """Yields all attempts."""
  yield from _orders(shared)
  yield from _finetuning(shared)
  yield from _grids(shared)
  yield from _modules(shared)
  yield from _exports(shared)


def _orders(shared):
  """The same flags in all orders."""
  flags = (
    '--config=finetune:texts',
    f'--init_from={shared.run}',
    '--init_model',
    '--config.model.dropout=0.25',
  )
  for order in itertools.permutations(flags):
    numbers = ''.join(str(flags.index(flag)) for flag in order)
    yield commands.Attempt(
      f'fine-tuning, flags in order {numbers}',
      'train',
      [*order, '--print_config'],
      'success',
      check=_has_model_and_flag,
    )


def _has_model_and_flag(folder, ended):
  del folder
  if ended.code:
    return None
  model = json.loads(ended.out)['model']
  shown = model['width'], model['dropout']
  if shown != (base.SMALL['model.width'], 0.25):
    return 'silent', f'width and dropout {shown}'
  return None


def _finetuning(shared):
  """What is refused; `says` is the remedy or what is wrong."""
  run = f'--init_from={shared.run}'
  for name, flags, says in (
    ('no run', ('--init_model',), 'name the run with --init_from=FOLDER'),
    (
      'no folder',
      ('--init_from=none', '--init_model'),
      "--init_from='none': .*no such folder",
    ),
    ('a value of --init_model', (run, '--init_model=maybe'), 'init_model'),
    ('no run for adapters', (), 'name it with --init_from'),
    ('no model', (run,), 'give --init_model'),
    ('no checkpoint', (run, '--init_model', '--init_checkpoint=77'), '77'),
    (
      "another cell's key",
      (run, '--init_model', '--config.cell.window=0'),
      'cell.window.*no such key',
    ),
    (
      'a key that is none',
      (run, '--init_model', '--config.cell.widow=0'),
      'widow',
    ),
    (
      'a width that changes all',
      (run, '--init_model', '--config.adapters.targets=("no.*",)'),
      'adapters.targets',
    ),
    (
      'an unknown form',
      ('--config=finetune:pairs', '--print_config'),
      "choose one of .*'texts'",
    ),
    (
      'into the same folder',
      (run, '--init_model', f'--workdir={shared.run}'),
      'this is --workdir: give a new one',
    ),
  ):
    yield commands.Attempt(
      f'fine-tuning{"" if name.startswith("into") else ":"} {name}',
      'train',
      _with_run(flags, '--config=finetune:texts', '--config.train.steps=1'),
      says=says,
    )


def _with_run(flags, *before):
  """Returns what makes the arguments: a new folder, unless flags name one."""
  return lambda folder: [*before, f'--workdir={folder / "run"}', *flags]


def _grids(shared):
  """Names of variants."""
  good = 'a.b', '1.5', 'lr-3e-4', 'v1.5_b', 'x.', '-'
  bad = '.hidden', '..', '.', 'a/b', '', 'a b', 'é', '../up', 'a\n'
  for name in (*good, *bad):
    text = GRID.format(config=str(shared.config), name=name)
    yield commands.Attempt(
      f'a variant {name!r}',
      'experiments',
      _listed(base.file('grid.py', text.encode())),
      'success' if name in good else 'refusal',
      says='variants=.*it names a folder',
    )


def _listed(write):
  return lambda folder: [
    f'--grid={write(folder)}',
    f'--workdir={folder / "runs"}',
    '--list',
  ]


def _modules(shared):
  """A cell of the user's."""
  varied = (
    f'--config={shared.config}',
    f'--vary=model.cell=gru,{CELL}',
    '--config.train.steps=1',
    '--config.evaluate.every=1',
  )
  yield commands.Attempt(
    "a grid with the user's cell",
    'experiments',
    _with_run(('--list',), *varied),
    'success',
  )
  for launcher, *flags in (
    ('experiments', *varied),
    ('train', f'--config={shared.config}'),
    ('evaluate', f'--workdir={shared.run}'),
    ('generate', f'--workdir={shared.run}', '--prompt=the'),
  ):
    yield commands.Attempt(
      f'{launcher} with a module that is missing',
      launcher,
      _with_run((*flags, '--modules=nowhere.mine')),
      says='--modules=nowhere.mine: it cannot be imported',
    )


def _exports(shared):
  """A classifier for other programs."""
  run = given.classifier_of(shared)
  for name, flags, says in (
    ('a classifier', (), ''),
    ('no rows', ('--batch_size=0',), '--batch_size=0: give 1'),
    ('no platform', ('--platforms=gpu',), '--platforms=gpu: choose'),
    ('a format of tensors', ('--dtype=bfloat16',), 'dtype'),
    ('a folder that exists', ('--output=/tmp',), '/tmp'),
    ('an unknown format', ('--format=onyx',), 'onyx'),
  ):
    yield commands.Attempt(
      f'export of {name}',
      'export',
      _exported(run, flags),
      'refusal' if flags else 'success',
      says,
      None if flags else _has_vocabulary,
    )


def _exported(run, flags):
  return lambda folder: [
    f'--workdir={run}',
    '--format=stablehlo',
    f'--output={folder / "out"}',
    *flags,
  ]


def _has_vocabulary(folder, ended):
  """The folder's tokenizer.json is one that package tokenizers reads."""
  import tokenizers

  if ended.code:
    return None
  path = folder / 'out' / 'tokenizer.json'
  try:
    read = tokenizers.Tokenizer.from_file(str(path))
  except Exception as error:  # the package raises nothing narrower
    return 'lost', f'tokenizer.json: {error}'
  ids = read.encode('a b', add_special_tokens=False).ids
  return None if ids == [*b'a b'] else ('silent', f'ids {ids}')
