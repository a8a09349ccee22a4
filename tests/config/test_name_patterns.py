"""Patterns of names, those that would take a backtracking matcher minutes."""

import pytest

from rnn_jax import errors
from rnn_jax.config import name_patterns

NAME = 'stack/blocks/layer_0/mixer/query_kernel/kernel' * 4


@pytest.mark.parametrize(
  ('pattern', 'matched'),
  (
    ('.*/kernel', True),
    ('stack/.*', True),
    ('kernel', False),  # a part of the name
    (r'.*/layer_\d+/.*', True),
    ('(embedding|head)/.*', False),
    ('(.*)*!', False),
    ('(a+)+$', False),
    ('(.*/)*(.*/)*(.*/)*x', False),
    ('(' * 490 + '.*' + ')' * 490, True),
    ('.?' * 400 + '.*', True),
  ),
)
def test_a_pattern_matches_a_whole_name(pattern, matched):
  name_patterns.check('adapters.targets', pattern)
  assert name_patterns.matches(pattern, NAME) is matched
  assert name_patterns.match_any(pattern, ['q', NAME]) is matched
  found = name_patterns.first_match(['none', pattern, '.*'], NAME)
  assert found == (1 if matched else 2)


@pytest.mark.parametrize(
  ('pattern', 'words'),
  (
    ('(', r"optimizer\.frozen='\(': not a regular expression \(missing \)"),
    ('(?!head).*', r"look-arounds such as '\(\?!\.\.\.\)'"),
    (r'(a)\1', 'references'),
    ('(' * 100_000, r'\(\.\.\.\'.*100,000 characters: give at most 1,000'),
    ('((a{1000}){1000}){1000}', 'bad repetition|invalid repetition'),
  ),
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern, words):
  with pytest.raises(errors.InputError, match=words) as refused:
    name_patterns.check('optimizer.frozen', pattern)
  assert len(str(refused.value)) < 400
