"""The lines that launch.prepare prints."""

from rnn_jax.data.preparation import requests


def test_counts_lengths_classes_and_copies_are_reported():
  points = {'least': 1, 'median': 20, '95 %': 40, 'most': 1059}
  record = {
    'examples': {'train': 8530, 'test': 2},
    'lengths': {'train': {'text: words': points}},
    'examples_by_class': {'train': {'neg': 4265, 'pos': 4265}},
    'label': 'label',
    'skipped': {'no label': 4},
    'duplicates': [
      {'first': 'train', 'second': 'train', 'contents': 3, 'example': 'ab'},
      {'first': 'train', 'second': 'test', 'contents': 1, 'example': 'cd'},
    ],
  }
  assert requests.report(record, 'data/x/1.0.0', True).splitlines() == [
    'data/x/1.0.0: written',
    '  train           8,530 examples',
    '    text: words: least 1, median 20, 95 % 40, most 1,059',
    '    label: neg 4,265, pos 4,265',
    '  test                2 examples',
    '  4 example(s) skipped: no label',
    '  3 example(s) twice in train, such as a and b',
    '  1 example(s) in train and test, such as c and d',
  ]
  summary = requests.report(record | {'duplicates': []}, 'd', False)
  assert summary.startswith('d: exists, nothing to do\n')
