"""Programs that the runs of a test file share: tracing takes most of a run.

The runs draw no curve either.
"""

import contextlib
import json
from unittest import mock

import jax

from rnn_jax import config as config_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import hooks as hooks_lib
from rnn_jax.training import programs as programs_lib

# What parameters' shapes don't depend on.
SHAPELESS = 'adapters', 'optimizer', 'schedule'
# What no program depends on: where batches come from, and when a run logs,
# evaluates and saves.
SECTIONS = 'evaluate', 'metrics', 'sample'
FIELDS = {
  'data': (
    'boundaries',
    'bucketing',
    'buckets',
    'feature_buckets',
    'fit',
    'layout',
    'length_multiple',
    'memory_gib',
    'path',
    'pool',
    'prefetch',
    'rarity_buckets',
    'segment_tokens',
    'splits',
    'workers',
  ),
  'train': (
    'checkpoint_every',
    'keep_checkpoints',
    'log_every',
    'max_skipped_steps',
    'seed',
  ),
}


@contextlib.contextmanager
def programs():
  """Inside it, configs that differ only in the above have the same programs."""
  tasks, made, shapes = {}, {}, {}
  make_task, make = programs_lib.make_task, programs_lib.Programs
  like = bundle_lib.like

  def task_of(config, tokenizer):
    given = _part(config), json.dumps(tokenizer.spec())
    if given not in tasks:
      tasks[given] = make_task(config, tokenizer)
    return tasks[given]

  def programs_of(task, config, mesh):
    given = id(task), _part(config), mesh
    if given not in made:
      made[given] = make(task, config, mesh)
    return made[given]

  def shapes_of(config, tokenizer):
    given = _part(config, SHAPELESS), json.dumps(tokenizer.spec())
    if given not in shapes:
      shapes[given] = like(config, tokenizer)
    return jax.tree.map(lambda x: x, shapes[given])

  with (
    mock.patch.object(bundle_lib, 'like', shapes_of),
    mock.patch.object(hooks_lib, 'draw_loss', lambda _: None),
    mock.patch.object(programs_lib, 'make_task', task_of),
    mock.patch.object(programs_lib, 'Programs', programs_of),
  ):
    yield


def _part(config, without=()):
  """Returns what programs depend on, as JSON."""
  values = config_lib.to_dict(config)
  for section in (*SECTIONS, *without):
    values.pop(section)
  if config.schedule.name == 'constant' and not config.pruning.sparsity:
    for name in ('steps', 'epochs'):
      values['train'].pop(name)
  for section, names in FIELDS.items():
    for name in names:
      values[section].pop(name, None)
  return json.dumps(values)
