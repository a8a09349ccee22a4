"""Text files: finding, splitting and refusing them."""

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.sources import text
from rnn_jax.data.tables import lines


def write(folder, **contents):
  for name, content in contents.items():
    path = folder / name.replace('__', '/')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix('.txt').write_bytes(content)


def load(path, splits=(100, 0, 0), **options):
  return text.load(
    config.section(
      'data', source='text', path=str(path), splits=splits, **options
    )
  )


def test_a_glob_finds_files_in_all_folders_below(tmp_path):
  write(tmp_path, b=b'B', deep__er__a=b'A')
  documents = load(tmp_path / '**' / '*.txt')['train']
  assert documents.names == ('b.txt', 'deep/er/a.txt')
  assert documents.read(1) == b'A'


def test_names_do_not_depend_on_where_the_folder_is(tmp_path):
  for place in ('here', 'elsewhere'):
    write(tmp_path / place, **{f'n{n}': b'x%d' % n for n in range(20)})
  here, elsewhere = (
    load(tmp_path / place / '*.txt', splits=(80, 10, 10))
    for place in ('here', 'elsewhere')
  )
  for name in here:
    assert here[name].names == elsewhere[name].names


def test_a_path_with_glob_characters_is_a_path_first(tmp_path):
  write(tmp_path, **{'a[1]': b'text'})
  assert load(tmp_path / 'a[1].txt')['train'].read(0) == b'text'


def test_held_out_paths_override_the_split(tmp_path):
  write(tmp_path, v=b'held out', **{f't{n}': b'train' for n in range(10)})
  splits = load(
    tmp_path / 't*.txt',
    splits=(80, 10, 10),
    validation_path=str(tmp_path / 'v.txt'),
  )
  assert [len(splits[name]) for name in splits] == [9, 1, 1]
  assert splits['validation'].read(0) == b'held out'


def test_a_held_out_file_in_the_training_glob_is_refused(tmp_path):
  write(tmp_path, a=b'a', v=b'v')
  with pytest.raises(errors.InputError, match='test_path.*v.txt too'):
    load(tmp_path / '*.txt', test_path=str(tmp_path / 'v.txt'))


@pytest.mark.parametrize('name', ('none.txt', '*.md', ''))
def test_nothing_found_names_key_value_and_remedy(tmp_path, name):
  path = str(tmp_path / name) if name else ''
  with pytest.raises(errors.InputError, match='data.path=.*give a file or a'):
    load(path)


def test_a_missing_held_out_file_names_its_own_key(tmp_path):
  write(tmp_path, a=b'a')
  with pytest.raises(errors.InputError, match='data.validation_path=.*no such'):
    load(tmp_path / 'a.txt', validation_path=str(tmp_path / 'none'))


def test_an_empty_file_is_named(tmp_path):
  write(tmp_path, full=b'x', empty=b'')
  with pytest.raises(errors.InputError, match='empty.txt is empty'):
    load(tmp_path / '*.txt')


@pytest.mark.parametrize('block', (2**24, 1, 2, 5))
def test_undecodable_bytes_are_named_with_their_offset(
  tmp_path, monkeypatch, block
):
  monkeypatch.setattr(lines, 'BLOCK', block)
  write(tmp_path, bad='abcdé'.encode() + b'\xff.', good='aé末é'.encode())
  lines.check(str(tmp_path / 'good.txt'), 'data.path')
  with pytest.raises(errors.InputError, match='bad.txt is not UTF-8.* 6'):
    load(tmp_path / 'bad.txt')


def test_one_file_splits_by_position(tmp_path):
  write(tmp_path, one=b'0123456789' * 10)
  with pytest.raises(errors.InputError, match="split_by='position'"):
    load(tmp_path / 'one.txt', splits=(90, 10, 0))
  splits = load(tmp_path / 'one.txt', splits=(90, 10, 0), split_by='position')
  assert [splits[name].total_bytes for name in splits] == [90, 10, 0]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
  write(tmp_path, a='\ufeffthe red cät'.encode(), b=b'plain')
  train = load(tmp_path / '*.txt')['train']
  read = [train.detached().read(n).decode() for n in range(2)]
  assert read == ['the red cät', 'plain']
  assert train.sizes.tolist() == [12, 5]
  assert train.read(0, 4, 7) == b'red'


def test_the_remedy_for_a_held_out_path_of_a_config_is_named(tmp_path):
  write(tmp_path, a=b'a')
  message = "validation_path='none.jsonl': no such file .searched in .*or .*=''"
  with pytest.raises(errors.InputError, match=message):
    load(tmp_path / 'a.txt', validation_path='none.jsonl')
