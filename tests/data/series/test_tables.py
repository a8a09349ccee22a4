"""All forms of tables give the same series; bad ones are refused in a line."""

import io

import numpy as np
import pandas as pd
import pytest

from rnn_jax import errors
from rnn_jax.data.series import fields
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.data.series import tables

TIMES = pd.date_range('2026-01-30', periods=5, freq='D')
WANTED = {
  'a': np.array([1.0, 2.5, np.nan, 4.0, 5.0]),
  'b': np.array([-1.0, 0.0, 3.0, np.nan, 7.0]),
}


def long(missing):
  """A long table; a missing reading is an empty field or no row."""
  lines = ['unique_id,ds,y']
  for name, values in WANTED.items():
    for time, value in zip(TIMES, values, strict=True):
      if not np.isnan(value) or missing == 'empty':
        text = '' if np.isnan(value) else f'{value:g}'
        lines.append(f'{name},{time:%Y-%m-%d},{text}')
  return '\n'.join(lines) + '\n'


def wide():
  frame = pd.DataFrame({'date': TIMES, **WANTED})
  return frame.to_csv(index=False)


def write(path, kind):
  if kind == 'parquet':
    pd.read_csv(io.StringIO(long('empty')), parse_dates=['ds']).to_parquet(path)
  else:
    given = {'empty': long('empty'), 'no row': long('no row'), 'wide': wide()}
    path.write_text(given[kind])


@pytest.mark.parametrize('kind', ('empty', 'no row', 'wide', 'parquet'))
def test_forms_of_tables_give_the_same_series(tmp_path, kind):
  path = tmp_path / ('t.parquet' if kind == 'parquet' else 't.csv')
  write(path, kind)
  panel = panel_lib.of(tables.read(str(path), 'data.path'), '', 'k')
  assert str(panel.frequency) == 'D' and panel.dated
  assert {each.name for each in panel.series} == {*WANTED}
  for n, each in enumerate(panel.series):
    np.testing.assert_array_equal(each.values_NxT[:, 0], WANTED[each.name])
    assert panel.times(n, np.array([0, 5])) == ['2026-01-30', '2026-02-04']


def test_rows_arrays_and_files_are_series(tmp_path):
  (tmp_path / 'rows.csv').write_text('id,v1,v2,v3\n"A",1,,3\n"B",4,5,\n')
  raws = tables.read(str(tmp_path / 'rows.csv'), 'data.path')
  assert [raw.values_NxT[-1, 0] for raw in raws] == [3, 5]
  assert np.isnan(raws[0].values_NxT[1]) and len(raws[1].values_NxT) == 2
  np.savez(tmp_path / 'a.npz', x=np.arange(4), z=np.ones(3))
  assert [x.name for x in tables.read(str(tmp_path / 'a.npz'), 'k')] == [*'xz']
  folder = tmp_path / 'each'
  folder.mkdir()
  for name in ('north', 'south'):
    (folder / f'{name}.csv').write_text('ds,y\n2026-01-01,1\n2026-01-02,2\n')
  found = tables.read(str(folder), 'k')
  assert [raw.name for raw in found] == ['north', 'south']
  frame = pd.DataFrame({'ds': TIMES, 'y': WANTED['a']})
  (raw,) = tables.of_frame(frame, tables.Options())
  np.testing.assert_array_equal(raw.values_NxT[:, 0], WANTED['a'])
  assert len(tables.of_frame(np.ones((3, 4)), tables.Options())) == 3


def test_times_with_an_offset_are_one_clock(tmp_path):
  """The hour that a clock change repeats is two hours."""
  path = tmp_path / 't.csv'
  zone = pd.date_range(
    '2026-10-24 22:00', periods=6, freq='h', tz='Europe/Berlin'
  )
  rows = [f'{x.isoformat()},{n}' for n, x in enumerate(zone)]
  path.write_text('\n'.join(['ds,y', *rows]))
  panel = panel_lib.of(tables.read(str(path), 'k'), '', 'k')
  assert str(panel.frequency) == 'h'
  assert panel.series[0].values_NxT[:, 0].tolist() == [*range(6)]


HEAD = 'unique_id,ds,y\n'
DAYS = ''.join(f'a,2026-01-{n:02},{n}\n' for n in range(1, 6))
HOSTILE = {
  'text': (HEAD + DAYS + 'a,2026-01-06,high\n', r"t.csv:7: .*'high'.*number"),
  'infinity': (HEAD + DAYS + 'a,2026-01-06,inf\n', r't.csv:7: .*has inf'),
  'twice': (HEAD + DAYS + 'a,2026-01-05,9\n', r't.csv:7: .*twice.*t.csv:6'),
  'unsorted': (HEAD + DAYS + 'a,2026-01-02,9\n', r't.csv:7: .*sort its rows'),
  'off the grid': (
    HEAD + DAYS + 'a,2026-01-07 03:00,9\n',
    r't.csv:7: .*readings every D from 2026-01-01',
  ),
  'no time': (HEAD + DAYS + 'a,soon,9\n', r"t.csv:7: .*'soon', which isn't"),
  'year 1': (HEAD + 'a,0001-01-01,1\n' + DAYS, r't.csv:2: .*1678 to 2261'),
  'year 9999': (HEAD + DAYS + 'a,9999-12-31,1\n', r't.csv:7: .*1678 to 2261'),
  'one row': (HEAD + 'a,2026-01-01,1\n', 'no series has two readings'),
  'two frequencies': (
    HEAD + DAYS + ''.join(f'b,2026-01-01 0{n}:00,1\n' for n in range(4)),
    "every h, and 'a' one every D",
  ),
  'columns twice': ('ds,y,y\n2026-01-01,1,2\n', "t.csv: two.*'y'"),
  'ragged': (HEAD + DAYS + 'a,2026-01-06,1,2,3,4\n', 'line 7.*correct'),
  'no rows': (HEAD, 'has no rows'),
  'empty': ('', 'is empty'),
  'a million columns': (
    ','.join(f'c{n}' for n in range(10**6)) + '\n1\n',
    r't.csv:1: 1,000,000 columns, more than',
  ),
  'other columns': ('when,what\n2026-01-01,1\n', "value='y'.*'when', 'what'"),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_a_bad_table_is_refused_with_its_place(tmp_path, name):
  content, message = HOSTILE[name]
  path = tmp_path / 't.csv'
  path.write_text(content)
  with pytest.raises(errors.InputError, match=message):
    panel_lib.of(tables.read(str(path), 'data.path'), '', 'data.frequency')


def test_a_wrong_frequency_is_refused_with_its_place(tmp_path):
  path = tmp_path / 't.csv'
  path.write_text(HEAD + DAYS)
  raws = tables.read(str(path), 'data.path')
  with pytest.raises(errors.InputError, match=r't.csv:3: .*every W'):
    panel_lib.of(raws, 'W', 'data.frequency')
  assert len(panel_lib.of(raws, '12h', 'k').series[0].values_NxT) == 9


def test_later_readings_must_follow(tmp_path):
  for name, days in (('one', DAYS), ('two', 'a,2026-01-05,1\n')):
    (tmp_path / f'{name}.csv').write_text(HEAD + days)
  one, two = (
    tables.read(str(tmp_path / f'{name}.csv'), 'k') for name in ('one', 'two')
  )
  with pytest.raises(errors.InputError, match=r'two.csv:2: .*what follows'):
    panel_lib.joined([one, two])
  (tmp_path / 'two.csv').write_text(HEAD + 'b,2026-01-06,1\n')
  two = tables.read(str(tmp_path / 'two.csv'), 'k')
  with pytest.raises(errors.InputError, match="series 'b' is not in .*one"):
    panel_lib.joined([one, two])


@pytest.mark.parametrize(
  ('times', 'dated', 'whole_days'),
  (
    (['2026-01-31T23:00', '2026-02-01T00:00'], True, False),
    (['2026-01-31', '2026-02-01'], True, True),
    (['2026-01-31T23:00:30', '2026-02-01T00:00'], True, False),
    (['2026-01-31T23:00:00.25'], True, False),
    ([], True, False),
    ([3, -4], False, True),
  ),
)
def test_times_together_are_the_texts_of_each(times, dated, whole_days):
  times_N = np.array(times, 'M8[ns]' if dated else int).astype(np.int64)
  each = [fields.shown(x, dated, whole_days) for x in times_N.tolist()]
  assert fields.shown_all(times_N, dated, whole_days) == each
