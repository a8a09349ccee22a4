"""Options that don't go with images are refused."""

import pytest

from rnn_jax import errors
from tests.models import test_vision


@pytest.mark.parametrize(
  ('key', 'value', 'message'),
  (
    ('vision.patch', 3, 'vision.patch=3: it must divide data.image.size=8'),
    ('vision.pooling', 'max', "vision.pooling='max': choose one of"),
    ('cell.heads', 3, 'they are 12 wide, and model.width=8: give heads that'),
    ('cell.window', 4, "cell.window=4: sees='row' sees all of it"),
    ('data.layout', 'padded', 'this layout holds tokens: they need each other'),
    ('data.length', 4, 'an image is a row of one step: give 1'),
    ('data.image.channels', 2, r'choose one of \(1, 3\)'),
    ('data.image.crop', 8, 'nothing of an image would be left'),
    ('data.image.mean', (0.5, 0.5), 'one for each of the 3 channels'),
    ('data.image.std', (0.0,), 'give numbers above 0'),
    ('data.classes', ('a',), 'name two or more classes'),
    ('model.embedding_width', 4, 'embedding_width'),
    ('recurrence.impl', 'cudnn', "model.cell='attention' has .*'blocked'.$"),
  ),
)
def test_bad_options_are_named(key, value, message):
  with pytest.raises(errors.InputError, match=message):
    test_vision.config('vit', **{key: value})


@pytest.mark.parametrize(
  ('model', 'impls', 'refused'),
  (
    ('vit', ('exact', 'blocked'), 'state'),
    ('v2', ('pairs', 'state'), 'blocked'),
    ('v2_softmax', ('pairs', 'blocked'), 'state'),
  ),
)
def test_rows_have_the_forms_of_their_attention(model, impls, refused):
  for impl in ('auto', 'scan', *impls):
    parsed = test_vision.config(model, **{'recurrence.impl': impl})
    assert parsed.recurrence.impl == impl
  with pytest.raises(
    errors.InputError, match=f'{refused!r}: model.cell=.* has'
  ):
    test_vision.config(model, **{'recurrence.impl': refused})
