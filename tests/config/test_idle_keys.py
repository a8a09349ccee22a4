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


@pytest.mark.parametrize(('named', 'key', 'value'), OF_ANOTHER_PART)
def test_a_key_of_another_part(named, key, value):
  (name, part) = next(iter(named.items()))
  changed = {**named, key.replace('.', '__'): value}
  message = test_config.refusal(test_config.changed(**changed))
  chosen = f'{name.replace("__", ".")}={part!r}'
  assert message.startswith(f'{key}={value!r}: {chosen} has no such key: ')
  assert 'leave it out, or choose one of [' in message


@pytest.mark.parametrize('every', (16, 'sqrt'))
def test_bdh_keeps_states_only_under_scan(every):
  changed = {'model__cell': 'bdh', 'remat__every': every}
  message = test_config.refusal(test_config.changed(**changed))
  assert message.startswith(f'remat.every={every!r}: ')
  assert "use 'scan'" in message
  raw = test_config.changed(**changed, recurrence__impl='scan')
  assert test_config.config_lib.parse(raw).remat.every == every
