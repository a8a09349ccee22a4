"""All forms of labelled tables give the same series; bad ones are refused."""

import numpy as np
import pandas as pd
import pytest

from rnn_jax import errors
from rnn_jax.data.series import labelled_tables
from tests.support import labelled_series

OPTIONS = labelled_tables.Options()
VALUES = [np.array([1.0, np.nan, 2.5]), np.array([-1.0, 4.0])]
LABELS = ['up', 'down']


def text(form):
  """The two series of one channel as a table."""
  if form == 'rows':
    return 'label,v1,v2,v3\nup,1,,2.5\ndown,-1,4,\n'
  return (
    'unique_id,y,label\ns0,1,up\ns0,,up\ns0,2.5,up\ns1,-1,down\ns1,4,down\n'
  )


def write(folder, form):
  if form == 'npz':
    X = np.array([[[1, np.nan, 2.5]], [[-1, 4, np.nan]]])
    np.savez(folder / 't.npz', X=X, y=np.array(LABELS))
    return folder / 't.npz'
  path = folder / 't.csv'
  path.write_text(text(form))
  return path


@pytest.mark.parametrize('form', ('long', 'rows', 'npz'))
def test_forms_of_tables_give_the_same_series(tmp_path, form):
  read = labelled_tables.read(str(write(tmp_path, form)), 'data.path', OPTIONS)
  assert read.channels == ('y',)
  for each, values, label in zip(read.series, VALUES, LABELS, strict=True):
    np.testing.assert_array_equal(each.values_LxC[:, 0], values)
    assert labelled_tables.label_of(each, 'x') == label


def test_frames_and_arrays_are_series():
  frame = labelled_series.frame(3)
  read = labelled_tables.of_frame(frame, OPTIONS)
  assert read.channels == labelled_series.CHANNELS and read.table == 'long'
  for name, each in zip(('s00', 's01', 's02'), read.series, strict=True):
    own = frame[frame.unique_id == name]
    np.testing.assert_array_equal(each.values_LxC, own[['a', 'b']])
    assert each.times == [*map(str, own.ds)]
  arrays = [each.values_LxC.T for each in read.series]
  again = labelled_tables.of_frame(arrays, OPTIONS)
  assert again.channels == ('channel_1', 'channel_2')
  for a, b in zip(read.series, again.series, strict=True):
    np.testing.assert_array_equal(a.values_LxC, b.values_LxC)
  (one,) = labelled_tables.of_frame(np.ones((1, 4)), OPTIONS).series
  assert one.values_LxC.shape == (4, 1) and one.labels is None


def test_labels_are_text_whatever_their_type():
  rows = {'v1': [1.0, 2.0, 3.0], 'v2': [1.0, 2.0, 3.0]}
  for given, wanted in (
    ([1, 2, 1], ['1', '2', '1']),
    ([1.0, np.nan, 2.5], ['1', '', '2.5']),
    (['a', None, ' b '], ['a', '', 'b']),
  ):
    frame = pd.DataFrame({'label': given, **rows})
    read = labelled_tables.of_frame(frame, OPTIONS)
    assert [labelled_tables.label_of(x, 'x') for x in read.series] == wanted


def test_a_ts_file_is_read_by_sktime(tmp_path):
  path = tmp_path / 'Walks_TRAIN.ts'
  path.write_text(
    '# made here\n@problemName Walks\n@timeStamps false\n@missing false\n'
    '@univariate false\n@dimensions 2\n@equalLength false\n'
    '@classLabel true up down\n@data\n'
    '1,2,3:4,5,6:up\n-1,-2:-3,-4:down\n'
  )
  read = labelled_tables.read(str(path), 'data.path', OPTIONS)
  assert read.channels == ('channel_1', 'channel_2')
  assert [each.name for each in read.series] == [
    'Walks_TRAIN-0',
    'Walks_TRAIN-1',
  ]
  assert read.series[0].values_LxC.tolist() == [[1, 4], [2, 5], [3, 6]]
  assert read.series[1].values_LxC.tolist() == [[-1, -3], [-2, -4]]
  assert [labelled_tables.label_of(x, 'x') for x in read.series] == LABELS
  path.write_text('nothing of the kind')
  with pytest.raises(errors.InputError, match='Walks_TRAIN.ts: not a .ts file'):
    labelled_tables.read(str(path), 'data.path', OPTIONS)


@pytest.mark.parametrize(
  ('content', 'says'),
  (
    (
      'unique_id,y,label\na,1,u\na,2,d\n',
      r"t\.csv:2: .*'a' has the labels 'u' and 'd'.*series_tagging",
    ),
    ('unique_id,y,label\na,1,u\na,hot,u\n', r"t\.csv:3: .*'hot'.*number"),
    ('unique_id,y,label\na,1,u\nb,,d\nb,,d\n', r'readings.*b.* are missing'),
    ('unique_id,y,label\na,1,u\na,inf,u\n', r't\.csv:3: .*inf'),
    ('unique_id,ds,y\na,2,1\na,1,1\n', r't\.csv:3: .*sort its rows'),
    ('unique_id,label\na,u\na,u\n', r'channels=\(\): .*has the columns'),
    ('unique_id,label,v1\na,u,1\na,u,2\n', ''),
    ('label\nu\n', 'no readings'),
  ),
)
def test_bad_tables_are_refused(tmp_path, content, says):
  path = tmp_path / 't.csv'
  path.write_text(content)

  def read():
    made = labelled_tables.read(str(path), 'data.path', OPTIONS)
    for each in made.series:
      labelled_tables.label_of(each, 'series_tagging')

  if not says:
    read()
    return
  with pytest.raises(errors.InputError, match=says) as caught:
    read()
  assert '\n' not in str(caught.value)


def test_other_channels_are_refused(tmp_path):
  options = labelled_tables.Options(channels=('a', 'c'))
  with pytest.raises(errors.InputError, match="channels='c': the frame has"):
    labelled_tables.of_frame(labelled_series.frame(2), options)
  with pytest.raises(errors.InputError, match="1 channels.*'a', 'c'"):
    labelled_tables.of_frame(np.ones((2, 4)), options)
  with pytest.raises(errors.InputError, match='of one channel'):
    labelled_tables.of_frame(pd.DataFrame({'v1': [1], 'v2': [2]}), options)
  np.savez(tmp_path / 't.npz', readings=np.ones((2, 4)))
  with pytest.raises(errors.InputError, match="name the array of readings 'X'"):
    labelled_tables.read(str(tmp_path / 't.npz'), 'k', OPTIONS)
  np.savez(tmp_path / 't.npz', X=np.ones((2, 4)), y=np.ones(3))
  with pytest.raises(errors.InputError, match='3 labels for 2 series'):
    labelled_tables.read(str(tmp_path / 't.npz'), 'k', OPTIONS)
