"""What a table of labelled series leaves open, its splits, its refusals."""

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.series import labelled
from tests.support import labelled_series


@pytest.fixture(name='path')
def _path(tmp_path):
  path = tmp_path / 'series.csv'
  labelled_series.frame().to_csv(path, index=False)
  return path


PARTS = 'task.name', 'data.source'


def contents(documents):
  return [labelled.content(documents.read(n)) for n in range(len(documents))]


def test_channels_classes_and_lengths_follow_from_the_table(path):
  raw = labelled_series.raw_config(path)
  config, corpus = labelled_series.corpus(raw)
  frame = labelled_series.frame()
  data = config.data
  assert data.channels == ('a', 'b') and data.classes == ('falling', 'rising')
  assert data.table == 'long' and data.labels == 'class'
  assert data.length == frame.groupby('unique_id').size().max()
  for documents in corpus.documents.values():
    for n, given in enumerate(contents(documents)):
      own = frame[frame.unique_id == documents.name(n)]
      np.testing.assert_array_equal(given.values_LxC, own[['a', 'b']])
      assert data.classes[int(given.targets_T[0])] == own.label.iloc[0]
      assert documents.labels[n] == given.targets_T[0]
  train = np.concatenate(
    [x.values_LxC for x in contents(corpus.documents['train'])]
  )
  for n, channel in enumerate('ab'):
    loc, scale = corpus.tokenizer.fitted[channel]
    assert loc == pytest.approx(np.nanmean(train[:, n]))
    assert scale == pytest.approx(np.nanstd(train[:, n]))


def test_each_split_has_its_share_of_every_class(path):
  frame = labelled_series.frame(40)
  rare = [f's{n:02}' for n in range(1, 20, 2)]  # 10 of 40 are of a third class
  frame.loc[frame.unique_id.isin(rare), 'label'] = 'rare'
  frame.to_csv(path, index=False)
  _, corpus = labelled_series.corpus(labelled_series.raw_config(path))
  counts = {
    name: np.bincount(x.labels, minlength=3).tolist()
    for name, x in corpus.documents.items()
  }
  assert counts == {
    'train': [6, 6, 12],
    'validation': [2, 2, 4],
    'test': [2, 2, 4],
  }
  names = [n for x in corpus.documents.values() for n in x.names]
  assert len({*names}) == 40


def test_files_of_splits_hold_nothing_out_of_the_first(path, tmp_path):
  labelled_series.frame(6, seed=1).to_csv(tmp_path / 'later.csv', index=False)
  raw = labelled_series.raw_config(path)
  raw.data.test_path = str(tmp_path / 'later.csv')
  raw.data.splits = (100, 0, 0)
  _, corpus = labelled_series.corpus(raw)
  sizes = {name: len(x) for name, x in corpus.documents.items()}
  assert sizes == {'train': 24, 'validation': 0, 'test': 6}


def changed(frame, name):
  """The table with one thing wrong."""
  first = frame.unique_id == 's00'
  if name == 'a label that changes':
    frame.loc[0, 'label'] = 'falling'
  elif name == 'a class seen once':
    frame.loc[first, 'label'] = 'odd'
  elif name == 'no label of a series':
    frame.loc[first, 'label'] = None
  elif name == 'one class':
    frame['label'] = 'rising'
  elif name == 'a channel that is all missing':
    frame['b'] = np.nan
  elif name == 'all readings missing':
    frame.loc[first, ['a', 'b']] = np.nan
  elif name == 'few series':
    frame = frame[frame.unique_id.isin(['s00', 's01'])].copy()
    frame['label'] = 'rising'
  return frame


@pytest.mark.parametrize(
  ('name', 'changes', 'says'),
  (
    ('a label that changes', {}, r"series\.csv:2: .*'s00' has the labels"),
    ('a class seen once', {}, "class 'odd' has one series"),
    ('no label of a series', {}, "'s00' has no label in 'label'"),
    ('one class', {}, "classes=.*'rising'"),
    ('a channel that is all missing', {}, "of 'b' to train on are missing"),
    ('all readings missing', {}, "readings of series 's00' are missing"),
    ('few series', {'data.classes': ('rising', 'x')}, '2 series cannot fill'),
    ('', {'data.label': 'kind'}, "data.label='kind': .*has the columns"),
    ('', {'data.channels': ('a', 'z')}, "channels='z'"),
    ('', {'data.classes': ('rising', 'still')}, "label .* is 'falling'"),
    ('', {'data.source': 'series'}, "give 'labelled_series'"),
    ('', {'task.name': 'forecasting'}, "give 'series'"),
    ('', {'data.length_schedule': (4,), 'data.length': 8}, 'data.length=4: '),
    ('', {'task.name': 'series_regression'}, "'rising', which isn't a number"),
  ),
)
def test_what_cannot_be_learned_is_refused(path, name, changes, says):
  changed(labelled_series.frame(), name).to_csv(path, index=False)
  own = {key: x for key, x in changes.items() if key not in PARTS}
  with pytest.raises(errors.InputError, match=says) as caught:
    if parts := {k: x for k, x in changes.items() if k in PARTS}:
      raw = config_lib.default(
        task=parts.get('task.name', 'series_classification'),
        source=parts.get('data.source', 'labelled_series'),
      )
      raw.data.path = str(path)
    else:
      raw = labelled_series.raw_config(path, **own)
    labelled_series.corpus(raw)
  assert '\n' not in str(caught.value)
