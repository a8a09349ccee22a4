"""Options that don't go with pruning or distillation are refused."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors


@pytest.mark.parametrize(
  ('values', 'message'),
  (
    ({'sparsity': 1.0}, r'pruning.sparsity=1.0: give a number in \[0, 1\)'),
    ({'scope': 'all'}, "pruning.scope='all': choose one of"),
    ({'every': 0}, 'pruning.every=0: give 1 or more'),
    ({'sparsity': 0.5}, 'pruning.end_step=0: give a step after'),
    ({'sparsity': 0.5, 'end_step': 1000}, 'before train.steps=1000'),
  ),
)
def test_impossible_schedules_are_refused(values, message):
  raw = config_lib.default()
  raw.pruning.update(values)
  with pytest.raises(errors.InputError, match=message):
    config_lib.parse(raw)


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'model.branch_scale': 0.0}, 'branch_scale=0.0: .* would stay 0'),
    ({'optimizer.ema_decay': 0.9}, 'optimizer.ema_decay=0.9: it takes'),
    (
      {'optimizer.name': 'schedule_free', 'schedule.name': 'constant'},
      "optimizer.name='schedule_free': it takes",
    ),
  ),
)
def test_options_with_pruning_are_refused(changes, message):
  raw = config_lib.default()
  raw.pruning.update(sparsity=0.5, end_step=10)
  config_lib.override(raw, changes)
  with pytest.raises(errors.InputError, match=message):
    config_lib.parse(raw)


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'distillation.alpha': 1.5}, 'distillation.alpha=1.5: give 1 or less'),
    ({'distillation.temperature': 0.0}, 'temperature=0.0: give a number above'),
  ),
)
def test_options_without_distillation_are_refused(changes, message):
  raw = config_lib.default()
  raw.distillation.teacher = 'runs/teacher'
  raw.update_from_flattened_dict(changes)
  with pytest.raises(errors.InputError, match=message):
    config_lib.parse(raw)
