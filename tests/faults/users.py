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
  ):

    def arguments(folder, flags=flags):
      return [
        '--config=finetune:texts',
        *flags,
        f'--workdir={folder / "run"}',
        '--config.train.steps=1',
      ]

    yield commands.Attempt(
      f'fine-tuning: {name}', 'train', arguments, says=says
    )
  yield commands.Attempt(
    'fine-tuning: an unknown form',
    'train',
    ['--config=finetune:pairs', '--print_config'],
    says="choose one of .*'texts'",
  )
  yield commands.Attempt(
    'fine-tuning into the same folder',
    'train',
    [
      '--config=finetune:texts',
      run,
      '--init_model',
      f'--workdir={shared.run}',
    ],
    says='this is --workdir: give a new one',
  )


def _grids(shared):
  """Names of variants."""
  good = 'a.b', '1.5', 'lr-3e-4', 'v1.5_b', 'x.', '-'
  bad = '.hidden', '..', '.', 'a/b', '', 'a b', 'é', '../up', 'a\n'
  for name in (*good, *bad):

    def arguments(folder, name=name):
      path = folder / 'grid.py'
      text = GRID.format(config=str(shared.config), name=name)
      path.write_text(text, encoding='utf-8')
      return [f'--grid={path}', f'--workdir={folder / "runs"}', '--list']

    yield commands.Attempt(
      f'a variant {name!r}',
      'experiments',
      arguments,
      'success' if name in good else 'refusal',
      says='variants=.*it names a folder',
    )


def _modules(shared):
  """A cell of the user's."""

  def arguments(folder, *flags):
    return [
      f'--config={shared.config}',
      f'--vary=model.cell=gru,{CELL}',
      '--config.train.steps=1',
      '--config.evaluate.every=1',
      f'--workdir={folder / "runs"}',
      *flags,
    ]

  yield commands.Attempt(
    "a grid with the user's cell",
    'experiments',
    lambda folder: arguments(folder, '--list'),
    'success',
  )
  for launcher, flags in (
    ('experiments', ()),
    ('train', (f'--config={shared.config}',)),
    ('evaluate', (f'--workdir={shared.run}',)),
    ('generate', (f'--workdir={shared.run}', '--prompt=the')),
  ):

    def missing(folder, launcher=launcher, flags=flags):
      if launcher == 'experiments':
        return arguments(folder, '--modules=nowhere.mine')
      own = [f'--workdir={folder / "run"}'] if launcher == 'train' else []
      return [*flags, *own, '--modules=nowhere.mine']

    yield commands.Attempt(
      f'{launcher} with a module that is missing',
      launcher,
      missing,
      says='--modules=nowhere.mine: it cannot be imported',
    )


def _exports(shared):
  """A classifier for other programs."""
  run = given.classifier_of(shared)
  for name, flags, expects, says in (
    ('a classifier', (), 'success', ''),
    ('no rows', ('--batch_size=0',), 'refusal', '--batch_size=0: give 1'),
    ('no platform', ('--platforms=gpu',), 'refusal', '--platforms=gpu: choose'),
    ('a format of tensors', ('--dtype=bfloat16',), 'refusal', 'dtype'),
    ('a folder that exists', ('--output=/tmp',), 'refusal', '/tmp'),
    ('an unknown format', ('--format=onyx',), 'refusal', 'onyx'),
  ):

    def arguments(folder, flags=flags):
      return [
        f'--workdir={run}',
        '--format=stablehlo',
        f'--output={folder / "out"}',
        *flags,
      ]

    yield commands.Attempt(
      f'export of {name}',
      'export',
      arguments,
      expects,
      says,
      _has_vocabulary if expects == 'success' else None,
    )


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
