"""The report on recall says what was learnt and what was not."""

import re

from tests.benchmarks import made


def test_what_was_learnt_and_what_not(tmp_path):
  rows = [
    made.row(
      f'{source} {distance}: {model}',
      held_out={'exact': exact, 'accuracy': accuracy, 'tokens': 400},
      weights=1234,
      steps=7,
      chance=0.125,
    )
    for source, distance, model, exact, accuracy in (
      ('recall', 4, 'ours', 0.95, 0.95),
      ('recall', 8, 'ours', 0.5, 0.5),
      ('recall', 4, 'theirs', 0.2, 0.2),
      ('copying', 4, 'ours', 0.9, 0.97),
    )
  ]
  rows.append(made.failed('copying 8: ours', 'killed by it'))
  text = made.section(tmp_path, 'recall', rows)
  assert '| ours | 1,234 | 7 | 95.0 % | 50.0 % |' in text
  assert '| theirs | 1,234 | 7 | 20.0 % | - |' in text
  assert '| ours | 1,234 | 7 | 90.0 % (97.0 % of letters) |' in text
  assert '* ours: 90 % or more at 4, not at 8.' in text
  assert '* theirs: 90 % at no distance measured.' in text
  assert 'a letter guessed is right in 12.5 % of cases' in text
  assert 'copying 8: ours: killed by it' in text
  assert len(re.findall(r'\(plots/.*?\.png\)', text)) == 1
