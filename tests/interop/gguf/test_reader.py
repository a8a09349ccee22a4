"""The header of a file: what is read, and what a stranger may have written."""

import os
import tracemalloc

import gguf
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.interop.gguf import reader
from tests.support import gguf_files


def test_values_and_tensors_of_package_gguf(tmp_path):
  path = tmp_path / 'a.gguf'
  writer = gguf.GGUFWriter(path, 'llama')
  writer.add_custom_alignment(64)
  writer.add_uint32('a.whole', 7)
  writer.add_float32('a.number', 0.25)
  writer.add_bool('a.flag', True)
  writer.add_string('a.text', 'ä b')
  writer.add_array('a.texts', ['x', '', '\n'])
  writer.add_array('a.numbers', [1.5, -2.0])
  matrix = np.arange(96, dtype=np.float32).reshape(2, 48)
  halves = np.linspace(-1, 1, 5).astype(np.float16)
  writer.add_tensor('m', matrix)
  writer.add_tensor('h', halves)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  file = reader.read(path)
  own = {k: x for k, x in file.values.items() if k.startswith('a.')}
  np.testing.assert_array_equal(own.pop('a.numbers'), [1.5, -2.0])
  assert own == {
    'a.whole': 7,
    'a.number': 0.25,
    'a.flag': True,
    'a.text': 'ä b',
    'a.texts': ['x', '', '\n'],
  }
  np.testing.assert_array_equal(file.read('m'), matrix)
  np.testing.assert_array_equal(file.read('h'), halves.astype(np.float32))
  assert file.read('h').dtype == np.float32


@pytest.mark.parametrize('name', gguf_files.WRONG)
def test_what_is_wrong_is_one_line_before_anything_is_made(name, tmp_path):
  content, says = gguf_files.WRONG[name]
  path = tmp_path / 'a.gguf'
  path.write_bytes(content)
  tracemalloc.start()
  with pytest.raises(errors.InputError, match=says) as caught:
    reader.read(path)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 4 * 2**20 + 8 * len(content)
  line = str(caught.value)
  assert line.startswith(str(path)) and '\n' not in line and len(line) < 500


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path):
  values = [
    ('general.architecture', 'text', 'llama'),
    ('a', 'array', (8, 2, gguf_files.text('b') + gguf_files.text('c'))),
    ('d', 'f32', 1.0),
  ]
  whole = gguf_files.file(values, [gguf_files.ONE], gguf_files.DATA)
  path = tmp_path / 'a.gguf'
  path.write_bytes(whole)
  assert reader.read(path).tensors['a'].shape == (8,)
  for size in range(len(whole)):
    path.write_bytes(whole[:size])
    with pytest.raises(errors.InputError):
      reader.read(path)


def test_flipped_bits_are_read_or_refused(tmp_path):
  values = [
    ('general.architecture', 'text', 'llama'),
    ('a', 'array', (4, 2, bytes(8))),
  ]
  whole = gguf_files.file(values, [gguf_files.ONE], gguf_files.DATA)
  path = tmp_path / 'a.gguf'
  for place in range(len(whole) - len(gguf_files.DATA)):
    changed = bytearray(whole)
    changed[place] ^= 1 << (0, 3, 7)[place % 3]
    path.write_bytes(changed)
    try:
      file = reader.read(path)
    except errors.InputError:
      continue
    for name in file.tensors:
      file.read(name)


def test_a_pipe_and_a_device_are_no_files(tmp_path):
  os.mkfifo(tmp_path / 'a.gguf')
  with pytest.raises(errors.InputError, match='it is a pipe'):
    reader.read(tmp_path / 'a.gguf')
  (tmp_path / 'b.gguf').symlink_to('/dev/zero')
  with pytest.raises(errors.InputError, match='it is a device'):
    reader.read(tmp_path / 'b.gguf')
