"""Datasets of the Hugging Face library in local folders; nothing downloads."""

import json
import pickle

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.sources import hf

TASK = config.section('task', name='classification')
CLASSES = ('pos', 'neg')


def section(name, **options):
  return config.section('data', source=f'hf:{name}', **options)


def test_the_package_that_is_missing_is_named(tmp_path, monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'datasets', None)
  with pytest.raises(errors.InputError, match=r"pip install 'rnn_jax\[hf\]'"):
    hf.load(section(tmp_path))


@pytest.mark.parametrize('name', ('', '/no/such/folder', './none', 'a/b/c'))
def test_what_is_no_folder_and_no_name_is_refused(name):
  with pytest.raises(errors.InputError, match='name the data|no such'):
    hf.load(section(name))


@pytest.fixture(name='library')
def _library(tmp_path, monkeypatch):
  library = pytest.importorskip('datasets', reason='needs the extra hf')
  monkeypatch.setattr(library.config, 'HF_DATASETS_CACHE', tmp_path / 'cache')
  monkeypatch.setattr(library.config, 'HF_HUB_OFFLINE', True)
  library.disable_progress_bars()
  return library


def made(library, rows=8, **extra):
  columns = {
    'body': [f'tëxt {n}' for n in range(rows)],
    'sentiment': [n % 2 for n in range(rows)],
    'n': [n / 2 for n in range(rows)],
  } | extra
  label = library.ClassLabel(names=[*CLASSES])
  return library.Dataset.from_dict(columns).cast_column('sentiment', label)


@pytest.mark.peers
def test_a_saved_dataset_has_its_splits_columns_and_classes(library, tmp_path):
  splits = {
    'train': made(library, id=[f'r{n}' for n in range(8)]),
    'dev': made(library, 4),
    'unsupervised': made(library, 3),
  }
  saved = str(tmp_path / 'saved')
  library.DatasetDict(splits).save_to_disk(saved)
  data = section(saved).resolve(TASK)
  assert (data.field, data.label, data.classes) == (
    'body',
    'sentiment',
    CLASSES,
  )
  loaded = pickle.loads(pickle.dumps(hf.load(data)))
  assert {k: len(v) for k, v in loaded.items()} == {
    'train': 8,
    'validation': 4,
    'test': 0,
  }
  train = loaded['train']
  assert [train.read(n).decode() for n in (0, 7)] == ['tëxt 0', 'tëxt 7']
  assert train.read(3, 1, 3) == 'ë'.encode()
  assert train.sizes.tolist() == [7] * 8
  assert train.labels.tolist() == [0, 1] * 4
  assert train.names[2] == 'r2'
  assert loaded['validation'].names[2] == 'saved/validation:2'


@pytest.mark.peers
def test_texts_stay_in_mapped_files(library, tmp_path):
  made(library).save_to_disk(str(tmp_path / 'saved'))
  data = section(tmp_path / 'saved', field='body', splits=(75, 25, 0))
  loaded = hf.load(data)
  assert len(loaded['train']) == 6 and len(loaded['validation']) == 2
  texts = loaded['train'].reader._rows.data
  assert type(texts).__name__ == 'MemoryMappedTable'
  assert loaded['train'].labels is None


@pytest.mark.peers
def test_rows_are_in_the_order_of_the_dataset_not_of_the_file(
  library, tmp_path
):
  made(library).select([5, 2, 0, 1]).save_to_disk(str(tmp_path / 'saved'))
  data = section(
    tmp_path / 'saved', field='body', splits=(75, 25, 0), difficulty='n'
  )
  documents = hf.load(data)
  got = {}
  for part in documents.values():
    for n in range(len(part)):
      got[part.names[n]] = part.read(n).decode(), part.difficulties[n]
  assert got == {
    f'saved/train:{n}': (f'tëxt {row}', row / 2)
    for n, row in enumerate([5, 2, 0, 1])
  }


def write(path, suffix, rows):
  if suffix == 'jsonl':
    path.write_text('\n'.join(map(json.dumps, rows)))
  elif suffix == 'csv':
    lines = [','.join(rows[0]), *(','.join(x.values()) for x in rows)]
    path.write_text('\n'.join(lines))
  else:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.peers
@pytest.mark.parametrize('suffix', ('jsonl', 'csv', 'parquet'))
def test_plain_folders_are_read_as_the_library_does(library, tmp_path, suffix):
  folder = tmp_path / 'plain'
  folder.mkdir()
  for split in ('train', 'test'):
    rows = [{'text': f'{split} {n}', 'label': 'ba'[n % 2]} for n in range(6)]
    write(folder / f'{split}.{suffix}', suffix, rows)
  data = section(folder).resolve(TASK)
  assert (data.field, data.label, data.classes) == ('text', 'label', ('a', 'b'))
  loaded = hf.load(data)
  assert len(loaded['test']) == 6 and len(loaded['validation']) == 1
  assert loaded['test'].read(1) == b'test 1'
  assert loaded['test'].labels.tolist() == [1, 0] * 3


@pytest.mark.peers
def test_dialogues_are_lists_of_texts(library, tmp_path):
  turns = [['hi', f'number {n}\nthree'] for n in range(4)]
  dataset = library.Dataset.from_dict({'turns': turns, 'emotion': [1, 2, 1, 2]})
  dataset.save_to_disk(str(tmp_path / 'saved'))
  loaded = hf.load(section(tmp_path / 'saved', splits=(75, 25, 0)))
  texts = {x.read(n) for x in loaded.values() for n in range(len(x))}
  assert texts == {f'hi\nnumber {n} three'.encode() for n in range(4)}


@pytest.mark.peers
@pytest.mark.parametrize(
  ('extra', 'options', 'message'),
  (
    ({'body': ['a', ' ']}, {}, "saved/train:1: 'body' is empty"),
    ({}, {'classes': ('neg', 'pos')}, r"are \('pos', 'neg'\): give those"),
    ({}, {'field': 'n'}, r"data.field='n': .* can be read are \['body'\]"),
    ({'title': ['a', 'b']}, {}, r"in any of \['body', 'title'\]"),
    (
      {'sentiment': [0, -1]},
      {},
      "saved/train:1: data.label='sentiment' is missing",
    ),
    ({'n': [0.5, None]}, {'difficulty': 'n'}, 'saved/train:1: .* is None'),
  ),
)
def test_what_is_wrong_is_named(library, tmp_path, extra, options, message):
  dataset = made(library, 2, **extra)
  dataset.save_to_disk(str(tmp_path / 'saved'))
  with pytest.raises(errors.InputError, match=message):
    hf.load(section(tmp_path / 'saved', **options).resolve(TASK))


@pytest.mark.peers
def test_a_test_split_of_secret_classes_is_left_out(library, tmp_path):
  hidden = made(library, 2, sentiment=[-1, -1])
  splits = {'train': made(library), 'test': hidden}
  library.DatasetDict(splits).save_to_disk(str(tmp_path / 'saved'))
  loaded = hf.load(section(tmp_path / 'saved').resolve(TASK))
  assert len(loaded['test']) == 0


@pytest.mark.peers
def test_rows_of_secret_classes_are_skipped_on_request(library, tmp_path):
  made(library, 4, sentiment=[0, -1, 1, None]).save_to_disk(
    str(tmp_path / 'saved')
  )
  data = section(tmp_path / 'saved', missing_labels='skip').resolve(TASK)
  loaded = hf.load(data)
  texts = [part.read(n) for part in loaded.values() for n in range(len(part))]
  assert sorted(texts) == ['tëxt 0'.encode(), 'tëxt 2'.encode()]


@pytest.mark.peers
def test_a_column_of_numbers_is_no_text(library, tmp_path):
  numbers = [str(n) for n in range(8)]
  made(library, body=numbers).save_to_disk(str(tmp_path / 'saved'))
  with pytest.raises(errors.InputError, match='series of numbers are of'):
    section(tmp_path / 'saved').resolve(TASK)
  given = section(tmp_path / 'saved', numbers_as_text=True).resolve(TASK)
  assert given.field == 'body'


@pytest.mark.peers
def test_a_script_is_refused_and_not_executed(library, tmp_path):
  folder = tmp_path / 'script'
  folder.mkdir()
  ran = tmp_path / 'ran'
  (folder / 'script.py').write_text(f'open({str(ran)!r}, "w")')
  with pytest.raises(
    errors.InputError, match='cannot open it .*scripts are no'
  ):
    hf.load(section(folder))
  assert not ran.exists()


@pytest.mark.peers
def test_a_damaged_file_is_named(library, tmp_path):
  saved = tmp_path / 'saved'
  made(library).save_to_disk(str(saved))
  (file,) = saved.glob('*.arrow')
  file.write_bytes(
    file.read_bytes().replace('tëxt'.encode(), b't\xff\xff\xffxt'[:5])
  )
  with pytest.raises(errors.InputError, match='cannot open|is damaged'):
    hf.load(section(saved, field='body'))
