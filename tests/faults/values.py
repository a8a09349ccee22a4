"""Hostile values of every key of a config, and of flags."""

import json
import pathlib
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

INTEGERS = ('-1', '1000000000', '9223372036854775808', 'x')
FLOATS = ('nan', 'inf', '-1', '1e300', '1e38')
TEXTS = ('', "a'b\n", 'x' * 300)
NOT_FINITE = 'is nan|not finite|non-finite'
TUPLES = ('()', '(-1,)', '("x",)')
HUGE, LARGER, LONG = '1000000000', '99999999999999999999', 'x' * 300
NAMED = {  # by command: flags that a refusal names, and their values
  'generate': {
    'max_new_tokens': (HUGE, '-1', LARGER),
    'samples': ('20000000', '0', '-5'),
    'seed': ('-1', LARGER),
    'temperature': ('nan', '-1', 'inf'),
    'top_k': ('-1',),
    'top_p': ('nan', '0', '1.5'),
    'checkpoint': ('99', '-1', '../run'),
    'weights': ('int9',),
    'min_new_tokens': ('300', '-3'),
    'stop': ('',),
    'prompt': ('',),
    'wrong': ('1',),
  },
  'evaluate': {
    'split': ('all', '../x'),
    'limit': ('-1',),
    'checkpoint': ('99',),
    'workdir': ('',),
    'bertscore': ('/nowhere',),
  },
  'inspect': {
    'split': ('all', '../x'),
    'checkpoint': ('99',),
    'workdir': ('',),
    'batches': ('-1', '0'),
  },
  'train': {
    'workdir': ('',),
    'from_step': ('-1',),
    'config': ('/dev/null',),
    'config.data.path': (
      *('/dev/zero', '/dev/stdin', '/proc/self/mem', '/nowhere/*', '['),
      '{folder}',
    ),
    'config.train.checkpoint_dir': ('/proc/x', '/dev/null'),
    'config.optimizer.eps': ('0',),
    'config.optimizer.b2': ('0.9999999999',),
    'config.optimizer.learning_rate': ('1e300',),
    'config.cell.gate_bias': ('1e308',),
    'config.recurrence.impl': ('pallas',),
    'config.data.splits': ('(50,50,50)', '(nan,50,50)'),
    'cpus': ('99', 'x'),
    'memory_fraction': ('2',),
    'coordinator': ('nowhere',),
    'process': ('1',),
    'config.data.length': (HUGE,),
    'config.data.batch_size': (HUGE,),
    'config.data.tokens_per_batch': ('1000000000000',),
    'config.model.width': (HUGE,),
    'config.model.layers': (HUGE,),
    'config.data.workers': ('100000',),
    'config.evaluate.batch_size': (HUGE,),
  },
  'prepare': {
    'name': ('../x', ''),
    'splits': ('nan,50,50', '50,50', '-1,50,51'),
    'classes': ('a,a',),
    'seed': ('-1',),
    'encoding': ('rot13', 'no'),
    'format': ('pickle',),
  },
  'convert': {'format': ('x',)},
  'export': {
    'format': ('x',),
    'batch_size': ('-1', 'x'),
    'max_shard_size': ('0', '-1', 'x', HUGE),
  },
  'prune': {'sparsity': ('nan', '2')},
  'plan': {
    'mesh': ('data=x', 'data=0'),
    'devices': (HUGE,),
    'target': ('x',),
    'efficiency': ('nan',),
  },
  'profile': {'steps': ('0',)},
  'find_batch_size': {
    'memory_gib': ('nan', '-1'),
    'length': ('1000000000000',),
  },
  'selfcheck': {'impl': ('x',)},
}
OTHERS = (  # command, its flags, and what a refusal names
  ('generate', '--prompts_file=/nowhere', 'prompt'),
  ('generate', 'extra', 'extra'),
  *(
    (command, f'--workdir={folder}', says)
    for command in ('evaluate', 'inspect')
    for folder, says in (
      *((name, name) for name in ('/nowhere', '/dev/null', '/proc/self')),
      (LONG, 'xxx'),
    )
  ),
  ('train', '--workdir=/proc/x', '/proc/x'),
  ('train', '--workdir=/dev/null', '/dev/null'),
  ('train', '--workdir=/dev/null/x', '/dev/null'),
  ('train', f'--workdir={LONG}', 'xxx'),
  ('train', '--from_step=99', 'no checkpoint'),
  ('train', '--config=/nowhere.py', 'nowhere'),
  ('train', '--config={run}/config.json', 'workdir'),
  (
    'train',
    '--config.schedule.name=cosine --config.schedule.final_learning_rate=1',
    'final_learning_rate',
  ),
  ('train', '--config.mesh.data=7', 'mesh'),
  ('train', f'--config.mesh.fsdp={HUGE}', 'mesh'),
  ('train', '--config.data.source=tfds:x', 'tfds'),
  ('train', '--config.data.source=tfds:space:x', 'tfds'),
  ('train', '--config.data.source=tfds:../../x', 'tfds'),
  ('train', '--config.data.source=images', 'images|path'),
  ('train', '--config.model.cell=os.path:join', 'os.path'),
  ('train', '--config.model.cell=os:system', 'os:system'),
  ('train', '--config.task.name=this:x', 'this'),
  ('train', '--config.distillation.teacher=/nowhere', 'teacher|/nowhere'),
  ('train', '--processes=2', 'coordinator|processes'),
  (
    'train',
    '--config.data.validation_path={text}/*.txt --config.data.splits=(90,0,10)',
    'path',
  ),
  ('prepare', '--input=/nowhere', '/nowhere'),
  ('prepare', f'--name={LONG}', 'name|xxx'),
  ('prepare', '--input=/dev/zero', '/dev/zero'),
  ('prepare', '--data_dir=/proc/x', '/proc'),
  ('convert', '--input=/nowhere', 'nowhere'),
  ('convert', '--input={text}', 'text|config'),
  ('export', '--format=safetensors --output=/proc/x', '/proc'),
  ('prune', '--output=/proc/x', '/proc'),
  ('quantize', '--output=/proc/x', '/proc'),
  ('quantize', '--output={run}', 'output|exists'),
  ('plan', '--rows=1000000000000 --devices=8', 'rows'),
  ('profile', '--workdir=/proc/x', '/proc'),
  ('experiments', '--grid=/nowhere.py', 'nowhere'),
  ('experiments', '--grid={config}', 'grid|runs'),
)
BEFORE = {  # flags before those; a flag that is given twice has the last value
  'generate': '--workdir={run} --prompt=the',
  **dict.fromkeys(('evaluate', 'inspect'), '--workdir={run}'),
  'prepare': '--name=x --input={text} --splits=60,20,20',
  'convert': '--input={text} --format=hf --workdir=/tmp/never',
  'export': '--workdir={run} --format=stablehlo --output=/tmp/never',
  'prune': '--workdir={run} --output=/tmp/never --sparsity=0.5',
  'quantize': '--workdir={run}',
  'plan': '--config={config} --target=v5e',
  **dict.fromkeys(('profile', 'find_batch_size'), '--config={config}'),
  'experiments': '--workdir=/tmp/never',
}


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
  """Commands with hostile flags."""
  places = {
    'run': shared.run,
    'folder': shared.folder,
    'text': shared.folder / 'text',
    'config': shared.config,
  }
  for command, flags, says in _flags():
    given = flags.format(**places).split(' ')
    before = BEFORE.get(command, '').format(**places).split()
    yield commands.Attempt(
      f'{command} {flags}'[:90],
      command,
      _train(shared, *given) if command == 'train' else [*before, *given],
      says=says,
    )
  for size, name in ((10**5, '100,000'), (120_000, '120,000')):
    yield commands.Attempt(
      f'generate with a prompt of {name} characters',
      'generate',
      [
        f'--workdir={shared.run}',
        f'--prompt={"a" * size}',
        '--max_new_tokens=2',
      ],
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


def _flags():
  """Yields (command, flags, what a refusal names)."""
  for command, flags in NAMED.items():
    for flag, values in flags.items():
      for value in values:
        yield command, f'--{flag}={value}', flag.rpartition('.')[2]
  yield from OTHERS


def _prompts(shared, content):
  write = base.file('prompts.txt', content)
  return lambda folder: [
    f'--workdir={shared.run}',
    f'--prompts_file={write(folder)}',
    '--max_new_tokens=2',
  ]
