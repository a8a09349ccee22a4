"""Options of the attention cell; what all cells promise is in test_contract."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors


def refusal(section='cell', **options):
  raw = config_lib.default('attention')
  raw[section].update(options)
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(raw)
  return str(caught.value)


@pytest.mark.parametrize(
  ('key', 'value', 'remedy'),
  (
    ('heads', 0, 'give 1 or more'),
    ('window', 0, 'give 1 or more'),
    ('window', 2**23, 'give 4194304 at most'),
    ('rotary', 1.0, 'give a number above 1, or 0 for no positions'),
    ('head_width', 5, 'rotary positions need an even one'),
    ('dropout', 1.0, 'give a number in [0, 1)'),
  ),
)
def test_a_value_out_of_range_is_refused(key, value, remedy):
  assert refusal(**{key: value}) == f'cell.{key}={value!r}: {remedy}'


def test_an_implementation_that_attention_lacks_is_refused():
  assert refusal('recurrence', impl='associative') == (
    "recurrence.impl='associative': model.cell='attention' has "
    "('auto', 'chunked', 'scan')"
  )
