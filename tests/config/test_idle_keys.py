"""A key without effect is an error that names it, its value and the remedy."""

import pytest

from tests.config import test_config

OF_ANOTHER_PART = (
  ({'optimizer__name': 'adafactor'}, 'optimizer.b1', 0.5),
  ({'optimizer__name': 'adafactor'}, 'optimizer.b2', 0.5),
  ({'optimizer__name': 'adafactor'}, 'optimizer.eps', 1e-3),
  ({'optimizer__name': 'sgd'}, 'optimizer.b2', 0.5),
  ({'optimizer__name': 'sgd'}, 'optimizer.eps', 1e-3),
  ({'optimizer__name': 'lion'}, 'optimizer.eps', 1e-3),
  ({'schedule__name': 'cosine'}, 'schedule.factor', 0.1),
  ({'schedule__name': 'cosine'}, 'schedule.patience', 1),
  ({'schedule__name': 'constant'}, 'schedule.final_learning_rate', 0.0),
  ({'schedule__name': 'inverse_sqrt'}, 'schedule.final_learning_rate', 0.0),
  ({'data__layout': 'padded'}, 'data.pool', 3),
  ({'data__layout': 'buckets'}, 'data.fit', 'best'),
  ({'data__layout': 'packed'}, 'data.buckets', 8),
  ({'data__layout': 'packed'}, 'data.boundaries', (256,)),
  ({'data__layout': 'packed'}, 'data.segment_tokens', 8),
  ({'data__layout': 'packed'}, 'data.image', {}),
  ({'data__source': 'text'}, 'data.field', 'text'),
  ({'data__source': 'jsonl'}, 'data.data_dir', 'data'),
  ({'data__source': 'text'}, 'data.synthetic', {}),
  ({'task__name': 'recall'}, 'task.turns', 'first'),
  ({'task__name': 'dialogue'}, 'task.pooling', 'max'),
)
WITHOUT_EFFECT = (
  ({}, 'mesh.schedule', '1f1b', 'mesh.pipe: leave it at .gpipe.'),
  ({}, 'mesh.micro_batches', 2, 'mesh.pipe: leave it at 0'),
  ({}, 'data.curriculum_shares', (50,), 'data.curriculum: leave it at'),
  ({}, 'data.curriculum_epochs', 2, 'data.curriculum: leave it at 5'),
  ({}, 'data.length_schedule_epochs', 2, 'data.length_schedule: leave it at'),
  ({}, 'train.loss_scale', 1024.0, "train.precision='float16': leave it at"),
  (
    {'train__precision': 'bfloat16'},
    'train.loss_scale_steps',
    10,
    "train.precision='float16': leave it at 2000",
  ),
  ({}, 'vision.patch', 8, "task.name='image_classification': leave it at 4"),
  ({}, 'model.max_positions', 99, "model.positions='learned': leave it at 0"),
  (
    {'model__norm': 'layer'},
    'model.norm_scale',
    True,
    "model.norm='rms': leave it at False",
  ),
  ({}, 'model.norm_plus_one', True, 'model.norm_scale=True: leave it at False'),
  (
    {'model__block': 'normed'},
    'model.embedding_norm',
    True,
    "block 'normed' norms its inputs: give False",
  ),
  ({}, 'evaluate.segment_tokens', 99, "data.layout='buckets' does not use it"),
  ({'model__cell': 'bdh'}, 'remat.every', 16, "use 'scan'"),
  ({'model__cell': 'bdh'}, 'remat.every', 'sqrt', "use 'scan'"),
)


@pytest.mark.parametrize(('named', 'key', 'value'), OF_ANOTHER_PART)
def test_a_key_of_another_part(named, key, value):
  (name, part) = next(iter(named.items()))
  changed = {**named, key.replace('.', '__'): value}
  message = test_config.refusal(test_config.changed(**changed))
  chosen = f'{name.replace("__", ".")}={part!r}'
  assert message.startswith(f'{key}={value!r}: {chosen} has no such key: ')
  assert 'leave it out, or choose one of [' in message


@pytest.mark.parametrize(('others', 'key', 'value', 'remedy'), WITHOUT_EFFECT)
def test_a_key_that_needs_another(others, key, value, remedy):
  changed = {**others, key.replace('.', '__'): value}
  with pytest.raises(test_config.errors.InputError, match=remedy) as caught:
    test_config.config_lib.parse(test_config.changed(**changed))
  assert str(caught.value).startswith(f'{key}={value!r}: ')


def test_bdh_keeps_states_under_scan():
  changed = {'model__cell': 'bdh', 'recurrence__impl': 'scan'}
  raw = test_config.changed(remat__every=16, **changed)
  assert test_config.config_lib.parse(raw).remat.every == 16
