"""Models in several files: ours, those of package gguf, and of strangers."""

import os
import shutil

import gguf
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.interop.gguf import parts
from rnn_jax.interop.gguf import reader
from rnn_jax.interop.gguf import writer
from tests.interop.gguf import models
from tests.support import bundles
from tests.support import gguf_files

NAMES = [f'm-{n:05}-of-00003.gguf' for n in (1, 2, 3)]


@pytest.fixture(scope='module', name='whole')
def _whole(tmp_path_factory):
  folder = tmp_path_factory.mktemp('gguf') / 'out'
  models.write(models.make('mamba2'), folder)
  return folder / 'model.gguf'


@pytest.fixture(scope='module', name='split')
def _split(whole, tmp_path_factory):
  """The same model in three files, by package gguf."""
  folder = tmp_path_factory.mktemp('split')
  given = gguf.GGUFReader(whole)
  count = -(-len(given.tensors) // 3)
  name = given.fields['general.architecture'].contents()
  writer = gguf.GGUFWriter(folder / 'm', name, split_max_tensors=count)
  for key, field in given.fields.items():
    if not key.startswith(('GGUF.', 'general.architecture')):
      own = field.types
      writer.add_key_value(key, field.contents(), own[0], *own[1:2])
  for x in given.tensors:
    writer.add_tensor(x.name, x.data)
  writer.write_header_to_file(folder / 'm.gguf')
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  assert sorted(os.listdir(folder)) == NAMES
  return folder


def test_parts_are_the_whole_file_by_any_of_their_names(whole, split):
  wanted = reader.read(whole)
  for name in NAMES:
    file = parts.read(split / name)
    assert file.path.name == NAMES[0]
    assert file.tensors.keys() == wanted.tensors.keys()
    for tensor in wanted.tensors:
      assert np.array_equal(file.read(tensor), wanted.read(tensor))
    own = {x for x in file.values if not x.startswith('split.')}
    assert own == wanted.values.keys()
  assert len({x.path for x in file.tensors.values()}) == 3
  assert parts.read(whole).tensors.keys() == wanted.tensors.keys()


def test_a_model_of_parts_is_converted(whole, split, tmp_path):
  bundles.assert_same(models.read(split), models.read(whole))
  bundles.assert_same(models.read(split / NAMES[1]), models.read(whole))
  shutil.copy(split / NAMES[2], tmp_path)
  with pytest.raises(errors.InputError, match='2 are missing, m-00001-of'):
    models.read(tmp_path)


def test_a_model_is_written_in_parts(whole, tmp_path):
  first = models.write(
    models.make('mamba2'), tmp_path / 'out', max_shard_size='6KB'
  )
  paths = sorted(first.parent.glob('*.gguf'))
  count, wanted = len(paths), reader.read(whole)
  assert count > 2 and [x.name for x in paths] == [
    f'model-{n + 1:05}-of-{count:05}.gguf' for n in range(count)
  ]
  for n, path in enumerate(paths):
    fields = gguf.GGUFReader(path).fields
    own = {
      name: (fields[name].types[0].name, fields[name].contents())
      for name in ('split.no', 'split.count', 'split.tensors.count')
    }
    assert own == {  # the types of llama-gguf-split
      'split.no': ('UINT16', n),
      'split.count': ('UINT16', count),
      'split.tensors.count': ('INT32', len(wanted.tensors)),
    }
    held = reader.read(path).tensors.values()
    assert len(held) == 1 or sum(x.nbytes for x in held) <= 6000
    assert n == 0 or len(fields) == len([*own]) + 3  # GGUF.*
  file = parts.read(paths[-1])
  assert [*file.tensors] == [*wanted.tensors]
  for tensor in wanted.tensors:
    assert np.array_equal(file.read(tensor), wanted.read(tensor))
  assert {x for x in file.values if not x.startswith('split.')} == {
    *wanted.values
  }
  bundles.assert_same(models.read(first.parent), models.read(whole))


def test_a_model_below_the_size_is_one_file(whole, tmp_path):
  path = models.write(
    models.make('mamba2'), tmp_path / 'out', max_shard_size='1G'
  )
  assert path.name == 'model.gguf' and path.read_bytes() == whole.read_bytes()


def test_too_many_parts_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(writer, 'PARTS', 2)
  with pytest.raises(errors.InputError, match=r'--max_shard_size=1: it gives'):
    models.write(models.make('mamba2'), tmp_path / 'out', max_shard_size='1')
  assert not [*tmp_path.iterdir()]


def part(n, count=3, total=3, tensor='abc'):
  """A part with one tensor."""
  values = [*gguf_files.NAMED, ('split.no', 'u32', n)]
  values += [
    ('split.count', 'u32', count),
    ('split.tensors.count', 'u32', total),
  ]
  own = gguf_files.tensor(tensor[n % len(tensor)], [8])
  return gguf_files.file(values, [own], gguf_files.DATA)


WRONG = {  # what is changed of the parts: {number: bytes}, what the line says
  'a part in the place of another': ({1: part(2)}, 'split.no=2 and'),
  'a part of another number': (
    {1: part(1, count=4)},
    'split.count=4, and part',
  ),
  'a part that is whole': (
    {2: gguf_files.file(gguf_files.NAMED)},
    'split.no=None and split.count=None',
  ),
  'a part that is cut': ({1: part(1)[:60]}, '00002-of-00003.gguf is damaged'),
  'a tensor twice': ({2: part(2, tensor='aba')}, 'a is in an earlier part'),
  'a wrong number of tensors': (
    {0: part(0, total=9)},
    'split.tensors.count=9, and 3 parts have 3',
  ),
  'a count that the name lacks': (
    {0: part(0, count=2)},
    'split.count=2, and the name of such a part',
  ),
  'parts without end': (
    {0: part(0, count=2**32 - 1)},
    'split.count=4294967295, and the name',
  ),
}


@pytest.mark.parametrize('name', WRONG)
def test_what_is_wrong_is_one_line(name, tmp_path):
  changed, says = WRONG[name]
  for n, own in enumerate(NAMES):
    (tmp_path / own).write_bytes(changed.get(n, part(n)))
  with pytest.raises(errors.InputError, match=says) as caught:
    parts.read(tmp_path / NAMES[0])
  assert '\n' not in str(caught.value) and len(str(caught.value)) < 500


def test_other_names_missing_parts_and_links_out_are_refused(tmp_path):
  folder = tmp_path / 'model'
  folder.mkdir()
  alone = folder / 'm.gguf'
  alone.write_bytes(part(0))
  with pytest.raises(errors.InputError, match='give all parts their names'):
    parts.read(alone)
  first = alone.rename(folder / NAMES[0])
  with pytest.raises(errors.InputError, match='2 are missing, m-00002-of'):
    parts.read(first)
  (folder / NAMES[1]).write_bytes(part(1))
  other = tmp_path / 'other'
  other.write_bytes(part(2))
  (folder / NAMES[2]).symlink_to(other)
  with pytest.raises(errors.InputError, match='of-00003'):
    parts.read(first)
  (folder / NAMES[2]).unlink()
  os.mkfifo(folder / NAMES[2])
  with pytest.raises(errors.InputError, match='it is a pipe'):
    parts.read(first)
