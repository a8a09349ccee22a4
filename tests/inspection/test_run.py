"""Whole runs and folders, inspected."""

import dataclasses
import importlib

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.inspection import activations
from rnn_jax.inspection import anatomy
from rnn_jax.inspection import report
from rnn_jax.inspection import run as run_lib
from rnn_jax.inspection import summary
from rnn_jax.models import packed_weights
from rnn_jax.runs import bundle
from rnn_jax.runs import workdir
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.training import programs as programs_lib
from tests.support import bundles
from tests.support import labelled_series
from tests.support import saved
from tests.support import tiny

IMAGES = {
  'bdh': {'model.layers': 2, 'model.width': 8, 'cell.neurons': 8},
  'vit': {
    'model.layers': 2,
    'model.width': 8,
    'model.mlp_width': 12,
    'cell.heads': 2,
    'cell.head_width': 4,
    'data.source': 'digits',
    'data.classes': tuple('0123456789'),
    'data.splits': (70, 10, 20),
    'data.image.size': 8,
    'data.image.channels': 1,
    'data.image.mean': (0.5,),
    'data.image.std': (0.5,),
    'data.image.crop': 0,
  },
  'lstm': {'model.layers': 1, 'model.width': 8},
}


def image_config(model):
  """The Config of a small model of the digits."""
  name = {'vit': ('cifar10_bdh', 'vit')}.get(model, ('digits_bdh',))
  raw = importlib.import_module(f'configs.{name[0]}').get_config(*name[1:])
  if model == 'lstm':
    raw, digits = config_lib.default('lstm'), raw
    for section in ('task', 'data', 'vision', 'evaluate', 'sample'):
      raw[section].update(digits[section])
  raw.update_from_flattened_dict(IMAGES[model])
  raw.evaluate.batch_size = 100
  return config_lib.parse(raw)


def text_config(folder):
  """The unparsed config of a small language model."""
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  raw.data.update(layout='stream', carry_state=True)
  return raw


def write(folder, config, at=4, where='checkpoints'):
  """A run's folder with the state of a new model at step `at`."""
  plain = run_lib.plain(config)
  programs = programs_lib.from_config(
    plain, tokenizer.Bytes(), jax.local_devices()[:1]
  )
  rng = np.random.default_rng(0)
  state = jax.tree.map(
    lambda x: np.zeros(x.shape, x.dtype),
    jax.eval_shape(lambda: programs.states.init(2)),
  )
  state = state.replace(
    step=np.int32(at),
    rate_scale=np.float32(1),
    params=jax.tree.map(
      lambda x: rng.normal(0, 0.3, x.shape).astype(x.dtype), state.params
    ),
  )
  folder.mkdir()
  whole = workdir.dump(config_lib.to_dict(config))
  (folder / 'config.json').write_text(whole)
  checkpoints = checkpoint.Checkpoints(folder / where, keep=1)
  saved.save(checkpoints, at, state.entries())
  checkpoints.close()
  return jax.device_get(state.params)


def look(folder, count=1, which='best'):
  """(the report, its text) of a folder's run."""
  opened = run_lib.Run.open(folder, which)
  values, last = run_lib.measure(opened, 'validation', count)
  assert {row['part'] for row in values['parts']} and last
  return values, report.markdown(values)


def test_images_that_are_seen_whole_have_no_time(tmp_path):
  params = write(tmp_path / 'run', image_config('vit'))
  values, text = look(tmp_path / 'run', count=2)
  assert values['batches'] == 2 and values['step'] == 4
  assert 100 < values['tokens'] < 200  # the second batch has padding
  parts = [row['part'] for row in values['parts']]
  assert parts[0] == 'patches'
  assert {'token', 'layer 0', 'layer 1', 'head'} <= {*parts}
  for row in values['parts']:
    assert row['gradient_norm'] > 0 and row['update_norm'] > 0
  kernel = np.linalg.norm(params['head']['kernel'])
  rows = {(row['part'], row['name']): row for row in values['parameters']}
  norm = rows['head', 'kernel']['weight_norm']
  assert norm == pytest.approx(kernel, rel=1e-5)
  rows = values['units']
  assert units_of(rows) == [(0, 'mlp', 12), (1, 'mlp', 12)]
  assert all(row['at_rest'] < 1 for row in rows)
  assert not values['recurrent']
  for key in ('gates', 'half_lives', 'states', 'flow'):
    assert not values[key]
  assert 'no distance in time' in text and '## Norm of the state' not in text


def units_of(rows):
  return [(row['layer'], row['of'], row['units']) for row in rows]


def test_shared_layers_see_an_image_whole(tmp_path):
  write(tmp_path / 'run', image_config('bdh'))
  opened = run_lib.Run.open(tmp_path / 'run')
  model, params = opened.programs.task.model, opened.state.params
  assert 'shared' in params['stack'] and not anatomy.is_recurrent(model)
  (batch,) = opened.batches('validation', 1)
  seen = jax.device_get(activations.layers_of(model, params, batch))
  rows = summary.units([seen], opened.config.model)
  assert units_of(rows) == [(0, 'cell', 32), (1, 'cell', 32)]


def test_images_that_are_read_in_a_row_have_gates_and_time(tmp_path):
  write(tmp_path / 'run', image_config('lstm'))
  values, text = look(tmp_path / 'run')
  assert {row['gate'] for row in values['gates']} == {'write', 'keep', 'read'}
  assert all(len(row['norms']) == 4 for row in values['states'])
  assert len(values['flow']) == 4 and min(values['flow']) > 0
  assert values['recurrent'] and '## Gradient of the last loss' in text


def test_a_student_is_opened_without_its_teacher(tmp_path):
  """Its checkpoints are elsewhere, too."""
  raw = text_config(tmp_path)
  raw.distillation.teacher = str(tmp_path / 'gone')
  raw.train.checkpoint_dir = str(tmp_path / 'elsewhere')
  write(tmp_path / 'run', config_lib.parse(raw), where=tmp_path / 'elsewhere')
  opened = run_lib.Run.open(tmp_path / 'run')
  assert opened.step == opened.state.step == 4
  assert not opened.config.distillation.teacher


def test_a_model_without_a_run_is_at_step_0(tmp_path):
  """Its matrices are packed, and the optimizer's state holds parameters."""
  raw = text_config(tmp_path)
  raw.optimizer.name = 'schedule_free'
  raw.schedule.name = 'constant'
  model = bundles.make(raw, tokenizer.Bytes())
  packed = packed_weights.panels(jax.device_put(model.params), 'int8')
  want = packed_weights.unpack(packed)
  model = dataclasses.replace(model, params=jax.device_get(packed))
  bundle.write(model, tmp_path / 'run', 'int8')
  opened = run_lib.Run.open(tmp_path / 'run', 'latest')
  assert opened.step == 0 == opened.state.step
  jax.tree.map(np.testing.assert_array_equal, opened.state.params, want)
  values, _ = run_lib.measure(opened, 'validation', 1)
  rate = raw.optimizer.learning_rate / raw.schedule.warmup_steps
  assert values['learning_rate'] == pytest.approx(rate)
  assert values['flow']
  for row in values['parts']:
    assert row['gradient_norm'] > 0 and 0 < row['ratio'] < 1


def test_an_ensemble_is_refused(tmp_path):
  raw = labelled_series.raw_config('t.csv', **{'task.members': 2})
  text = workdir.dump(config_lib.to_dict(config_lib.parse(raw)))
  (tmp_path / 'config.json').write_text(text)
  with pytest.raises(errors.InputError, match=r'task\.members=2: an ensemble'):
    run_lib.Run.open(tmp_path)
