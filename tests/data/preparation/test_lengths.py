"""Words and items of examples, counted and plotted."""

from rnn_jax.data.preparation import lengths
from rnn_jax.data.tables import values as values_lib


def test_words_and_items_are_counted_and_labels_are_not():
  values = {
    'text': 'one  two\nthree',
    'turns': ['a b', 'c'],
    'ids': [1, 2, 3],
    'label': 'very good',
    'score': 3,
  }
  assert lengths.count(values_lib.Row('f:1', values, ''), 'label') == {
    'text: words': 3,
    'turns: items': 2,
    'turns: words': 3,
    'ids: items': 3,
  }


def test_a_summary_has_four_points():
  summary = lengths.summary({'text: words': [*range(101)]})
  assert summary == {
    'text: words': {'least': 0, 'median': 50, '95 %': 95, 'most': 100}
  }


def test_splits_with_different_counts_share_a_plot(tmp_path):
  path = tmp_path / 'lengths.png'
  counted = {'train': {'a': [1, 2, 2], 'b': [5]}, 'test': {'a': [7]}}
  lengths.draw(counted, str(path))
  assert path.read_bytes().startswith(b'\x89PNG')


def test_a_count_that_never_varies_is_left_out():
  counted = {
    'train': {'id: words': [1, 1], 'text: words': [4, 4]},
    'test': {'id: words': [1], 'text: words': [5]},
    'validation': {'id: words': [1]},
  }
  assert lengths.informative(counted) == {
    'train': {'text: words': [4, 4]},
    'test': {'text: words': [5]},
  }
