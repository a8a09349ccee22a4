"""Hostile values of every key of a config, and of flags."""

import json
import pathlib
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

INTEGERS = ('-1', '1000000000', '9223372036854775808', 'x')
FLOATS = ('nan', 'inf', '-1', '1e300', '1e38')
TEXTS = ('', "a'b\n", 'x' * 300)
SPLITS = '--splits=60,20,20'
NOT_FINITE = 'is nan|not finite|non-finite'
TUPLES = ('()', '(-1,)', '("x",)')


def config_values(shared: base.Base) -> Iterator[commands.Attempt]:
  """Trains with each key of the config at each hostile value of its type."""
  for section, values in shared.config_of_run().items():
    if not isinstance(values, dict):
      continue
    for key, value in values.items():
      for hostile in _hostile(value):
        flag = f'--config.{section}.{key}={hostile}'
        yield commands.Attempt(
          name=repr(flag)[1:81],
          launcher='train',
          arguments=_train(shared, flag),
          expects='either',
          says=f'{key if key != "name" else section}|{NOT_FINITE}',
          check=_is_finite,
          finding=4,
        )


def _hostile(value):
  if isinstance(value, bool):
    return ('maybe',)
  if isinstance(value, int):
    return INTEGERS
  if isinstance(value, float):
    return FLOATS
  if isinstance(value, list):
    return TUPLES
  return TEXTS


def _train(shared, *flags):
  return lambda folder: [*shared.train(folder / 'run'), *flags]


def _is_finite(folder, ended):
  """What was trained has losses that are numbers."""
  path = pathlib.Path(folder, 'run', 'metrics.jsonl')
  if ended.code == 0 and path.exists():
    for line in path.read_text().splitlines():
      row = json.loads(line)
      if any(row.get(key, 0) is None for key in ('loss', 'held_out_loss')):
        return 'silent', line[:200]
  return None


def flag_values(shared: base.Base) -> Iterator[commands.Attempt]:
  """Launchers with hostile flags."""
  run = f'--workdir={shared.run}'
  generate = (run, '--prompt=the')
  for flags, says in (
    (('--max_new_tokens=1000000000',), 'max_new_tokens'),
    (('--max_new_tokens=-1',), 'max_new_tokens'),
    (('--max_new_tokens=99999999999999999999',), 'max_new_tokens'),
    (('--samples=20000000',), 'samples'),
    (('--samples=0',), 'samples'),
    (('--samples=-5',), 'samples'),
    (('--seed=-1',), 'seed'),
    (('--seed=99999999999999999999',), 'seed'),
    (('--temperature=nan',), 'temperature'),
    (('--temperature=-1',), 'temperature'),
    (('--temperature=inf',), 'temperature'),
    (('--top_k=-1',), 'top_k'),
    (('--top_p=nan',), 'top_p'),
    (('--top_p=0',), 'top_p'),
    (('--top_p=1.5',), 'top_p'),
    (('--checkpoint=99',), 'checkpoint'),
    (('--checkpoint=-1',), 'checkpoint'),
    (('--checkpoint=../run',), 'checkpoint'),
    (('--weights=int9',), 'weights'),
    (('--min_new_tokens=300',), 'min_new_tokens'),
    (('--min_new_tokens=-3',), 'min_new_tokens'),
    (('--stop=',), 'stop'),
    (('--prompt=',), 'prompt'),
    (('--prompts_file=/nowhere',), 'prompt'),
    (('extra',), 'extra'),
    (('--wrong=1',), 'wrong'),
  ):
    yield commands.Attempt(
      f'generate {" ".join(flags)}',
      'generate',
      [*generate, *flags],
      says=says,
    )
  for size, name in ((10**5, '100,000'), (120_000, '120,000')):
    yield commands.Attempt(
      f'generate with a prompt of {name} characters',
      'generate',
      [run, '--prompt=' + 'a' * size, '--max_new_tokens=2'],
      expects='success',
    )
  for content, says in (
    (b'', 'prompts_file'),
    (b'\xff\xfe', 'prompts_file'),
    (b'a\n\nb', 'line 2'),
    (b'a\n' * 200_000, 'prompt|memory|rows'),
  ):
    yield commands.Attempt(
      f'generate with prompts of {content[:8]!r}',
      'generate',
      _prompts(shared, content),
      expects='either',
      says=says,
    )
  for flags, says in (
    (('--split=all',), 'split'),
    (('--split=../x',), 'split'),
    (('--limit=-1',), 'limit'),
    (('--checkpoint=99',), 'checkpoint'),
    (('--workdir=/nowhere',), '/nowhere'),
    (('--workdir=',), 'workdir'),
    (('--workdir=/dev/null',), '/dev/null'),
    (('--workdir=/proc/self',), '/proc/self'),
    (('--workdir=' + 'x' * 300,), 'xxx'),
    (('--bertscore=/nowhere',), 'bertscore'),
  ):
    for launcher in ('evaluate', 'inspect'):
      if launcher == 'inspect' and ('bertscore' in says or 'limit' in says):
        continue
      yield commands.Attempt(
        f'{launcher} {flags[0][:60]}', launcher, [run, *flags], says=says
      )
  yield from _of_train_flags(shared)
  yield from _of_other_launchers(shared)


def _prompts(shared, content):
  def arguments(folder):
    path = folder / 'prompts.txt'
    path.write_bytes(content)
    return [
      f'--workdir={shared.run}',
      f'--prompts_file={path}',
      '--max_new_tokens=2',
    ]

  return arguments


def _of_train_flags(shared):
  for flags, says in (
    (('--workdir=/proc/x',), '/proc/x'),
    (('--workdir=/dev/null',), '/dev/null'),
    (('--workdir=/dev/null/x',), '/dev/null'),
    (('--workdir=' + 'x' * 300,), 'xxx'),
    (('--workdir=',), 'workdir'),
    (('--from_step=99',), 'no checkpoint'),
    (('--from_step=-1',), 'from_step'),
    (('--config=/nowhere.py',), 'nowhere'),
    (('--config=/dev/null',), 'config'),
    (('--config=' + str(shared.run / 'config.json'),), 'workdir'),
    (('--config.data.path=/dev/zero',), 'path'),
    (('--config.data.path=/dev/stdin',), 'path'),
    (('--config.data.path=/proc/self/mem',), 'path'),
    (('--config.data.path=/nowhere/*',), 'path'),
    (('--config.data.path=[',), 'path'),
    (('--config.data.path=' + str(shared.folder),), 'path'),
    (('--config.train.checkpoint_dir=/proc/x',), 'checkpoint_dir'),
    (('--config.train.checkpoint_dir=/dev/null',), 'checkpoint_dir'),
    (('--config.optimizer.eps=0',), 'eps'),
    (('--config.optimizer.b2=0.9999999999',), 'b2'),
    (('--config.optimizer.learning_rate=1e300',), 'learning_rate'),
    (('--config.cell.gate_bias=1e308',), 'gate_bias'),
    (
      (
        '--config.schedule.name=cosine',
        '--config.schedule.final_learning_rate=1',
      ),
      'final_learning_rate',
    ),
    (('--config.recurrence.impl=pallas',), 'impl'),
    (('--config.mesh.data=7',), 'mesh'),
    (('--config.mesh.fsdp=1000000000',), 'mesh'),
    (('--config.data.splits=(50,50,50)',), 'splits'),
    (('--config.data.splits=(nan,50,50)',), 'splits'),
    (('--config.data.source=tfds:x',), 'tfds'),
    (('--config.data.source=tfds:space:x',), 'tfds'),
    (('--config.data.source=tfds:../../x',), 'tfds'),
    (('--config.data.source=images',), 'images|path'),
    (('--config.model.cell=os.path:join',), 'os.path'),
    (('--config.model.cell=os:system',), 'os:system'),
    (('--config.task.name=this:x',), 'this'),
    (('--config.distillation.teacher=/nowhere',), 'teacher|/nowhere'),
    (('--cpus=99',), 'cpus'),
    (('--cpus=x',), 'cpus'),
    (('--memory_fraction=2',), 'memory_fraction'),
    (('--coordinator=nowhere',), 'coordinator'),
    (('--processes=2',), 'coordinator|processes'),
    (('--process=1',), 'process'),
    (
      (
        '--config.data.validation_path=' + shared.text,
        '--config.data.splits=(90,0,10)',
      ),
      'path',
    ),
    (('--config.data.length=1000000000',), 'length'),
    (('--config.data.batch_size=1000000000',), 'batch_size'),
    (('--config.data.tokens_per_batch=1000000000000',), 'tokens_per_batch'),
    (('--config.model.width=1000000000',), 'width'),
    (('--config.model.layers=1000000000',), 'layers'),
    (('--config.data.workers=100000',), 'workers'),
    (('--config.evaluate.batch_size=1000000000',), 'batch_size'),
  ):
    yield commands.Attempt(
      f'train {" ".join(flags)}'[:90],
      'train',
      _train(shared, *flags),
      says=says,
    )


def _of_other_launchers(shared):
  run = f'--workdir={shared.run}'
  text = str(shared.folder / 'text')
  for launcher, flags, says in (
    ('prepare', ('--name=x', '--input=/nowhere'), '/nowhere'),
    ('prepare', ('--name=../x', f'--input={text}'), 'name'),
    ('prepare', ('--name=', f'--input={text}'), 'name'),
    ('prepare', ('--name=' + 'x' * 300, f'--input={text}', SPLITS), 'name|xxx'),
    (
      'prepare',
      ('--name=x', f'--input={text}', '--splits=nan,50,50'),
      'splits',
    ),
    ('prepare', ('--name=x', f'--input={text}', '--splits=50,50'), 'splits'),
    ('prepare', ('--name=x', f'--input={text}', '--splits=-1,50,51'), 'splits'),
    ('prepare', ('--name=x', f'--input={text}', '--classes=a,a'), 'classes'),
    ('prepare', ('--name=x', f'--input={text}', '--seed=-1', SPLITS), 'seed'),
    (
      'prepare',
      ('--name=x', f'--input={text}', '--encoding=rot13'),
      'encoding',
    ),
    ('prepare', ('--name=x', f'--input={text}', '--encoding=no'), 'encoding'),
    ('prepare', ('--name=x', f'--input={text}', '--format=pickle'), 'format'),
    ('prepare', ('--name=x', '--input=/dev/zero'), '/dev/zero'),
    (
      'prepare',
      ('--name=x', f'--input={text}', '--data_dir=/proc/x', SPLITS),
      '/proc',
    ),
    ('convert', ('--input=/nowhere', '--format=gpt2'), 'nowhere'),
    ('convert', (f'--input={text}', '--format=gpt2'), 'text|config'),
    ('convert', (f'--input={text}', '--format=x'), 'format'),
    ('export', (run, '--format=x', '--output=/tmp/never'), 'format'),
    ('export', (run, '--format=safetensors', '--output=/proc/x'), '/proc'),
    (
      'export',
      (run, '--format=stablehlo', '--batch_size=-1', '--output=/tmp/never'),
      'batch_size',
    ),
    ('export', (run, '--format=stablehlo', '--batch_size=x'), 'batch_size'),
    ('prune', (run, '--output=/proc/x', '--sparsity=0.5'), '/proc'),
    ('prune', (run, '--output=/tmp/never', '--sparsity=nan'), 'sparsity'),
    ('prune', (run, '--output=/tmp/never', '--sparsity=2'), 'sparsity'),
    ('quantize', (run, '--output=/proc/x'), '/proc'),
    ('quantize', (run, f'--output={shared.run}'), 'output|exists'),
    ('inspect', (run, '--batches=-1'), 'batches'),
    ('inspect', (run, '--batches=0'), 'batches'),
    (
      'plan',
      (f'--config={shared.config}', '--mesh=data=x', '--target=v5e'),
      'mesh',
    ),
    (
      'plan',
      (f'--config={shared.config}', '--mesh=data=0', '--target=v5e'),
      'mesh',
    ),
    (
      'plan',
      (f'--config={shared.config}', '--devices=1000000000', '--target=v5e'),
      'devices',
    ),
    ('plan', (f'--config={shared.config}', '--target=x'), 'target'),
    (
      'plan',
      (f'--config={shared.config}', '--efficiency=nan', '--target=v5e'),
      'efficiency',
    ),
    (
      'plan',
      (
        f'--config={shared.config}',
        '--rows=1000000000000',
        '--target=v5e',
        '--devices=8',
      ),
      'rows',
    ),
    ('profile', (f'--config={shared.config}', '--workdir=/proc/x'), '/proc'),
    ('profile', (f'--config={shared.config}', '--steps=0'), 'steps'),
    (
      'find_batch_size',
      (f'--config={shared.config}', '--memory_gib=nan'),
      'memory_gib',
    ),
    (
      'find_batch_size',
      (f'--config={shared.config}', '--memory_gib=-1'),
      'memory_gib',
    ),
    (
      'find_batch_size',
      (f'--config={shared.config}', '--length=1000000000000'),
      'length',
    ),
    ('experiments', ('--grid=/nowhere.py', '--workdir=/tmp/never'), 'nowhere'),
    (
      'experiments',
      ('--grid=' + str(shared.config), '--workdir=/tmp/never'),
      'grid|runs',
    ),
    ('selfcheck', ('--impl=x',), 'impl'),
  ):
    yield commands.Attempt(
      f'{launcher} {" ".join(flags)[:80]}',
      launcher,
      list(flags)
      if launcher != 'convert'
      else [*flags, '--workdir=/tmp/never_created'],
      says=says,
    )
