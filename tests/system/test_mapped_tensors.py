"""Mapped files of arrays: what was written, its own pages, or refused."""

import json
import os
import re

import hypothesis
import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors
from hypothesis import strategies

from rnn_jax.system import mapped_tensors

METADATA = {'format': 'a test', 'é': 'ü'}


def draw(dtype, shape, seed=0):
  return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def arrays():
  """Of every dtype; some are whole lines of 64 bytes, others aren't."""
  return {
    'a.kernel': draw(np.float32, (3, 16)),
    'b': draw(np.int8, (5, 7)),
    'c': draw(ml_dtypes.bfloat16, (2, 32)),
    'd': draw(np.float16, (1, 3, 1)),
    'e': draw(np.uint8, (64,)),
    'scalar': draw(np.float32, ()),
    'none': draw(np.float32, (0, 4)),
  }


def write(folder):
  path = folder / 'x.safetensors'
  mapped_tensors.write(path, arrays(), METADATA)
  return path


def test_what_is_written_is_read_here_and_by_the_library(tmp_path):
  path = write(tmp_path)
  opened = mapped_tensors.Tensors(path)
  opened.check_digest()
  assert opened.metadata.items() >= METADATA.items()
  with safetensors.safe_open(path, framework='numpy') as file:
    assert {*file.keys()} == {*opened.arrays} == {*arrays()}
    assert file.metadata() == opened.metadata
    for name, x in arrays().items():
      got = opened.arrays[name]
      assert (got.dtype, got.shape) == (x.dtype, x.shape)
      np.testing.assert_array_equal(got, x)
      np.testing.assert_array_equal(file.get_tensor(name), x)
  assert os.listdir(tmp_path) == [path.name]


def test_a_cpu_reads_the_pages_of_the_file(tmp_path):
  opened = mapped_tensors.Tensors(write(tmp_path))
  device = jax.local_devices()[0]
  for name, x in opened.arrays.items():
    assert not x.flags.writeable
    if x.nbytes and x.nbytes % mapped_tensors.ALIGNED == 0:
      at = jax.device_put(x, device).unsafe_buffer_pointer()
      assert at == x.ctypes.data, name


def test_a_file_that_is_written_again_leaves_who_has_mapped_it(tmp_path):
  path = write(tmp_path)
  opened = mapped_tensors.Tensors(path)
  mapped_tensors.write(path, {'b': draw(np.int8, (5, 7), seed=1)}, {})
  np.testing.assert_array_equal(opened.arrays['b'], arrays()['b'])
  assert {*mapped_tensors.Tensors(path).arrays} == {'b'}


@hypothesis.given(strategies.data())
def test_no_changed_byte_is_taken_for_what_was_written(tmp_path_factory, data):
  path = write(tmp_path_factory.mktemp('changed'))
  content = bytearray(path.read_bytes())
  at = data.draw(strategies.integers(0, len(content) - 1))
  content[at] ^= data.draw(strategies.integers(1, 255))
  path.write_bytes(content)
  try:
    opened = mapped_tensors.Tensors(path)
    opened.check_digest()
  except ValueError:
    return
  # White space of the header says nothing.
  for name, x in arrays().items():
    np.testing.assert_array_equal(opened.arrays[name], x)


def with_header(header, size=64):
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  return len(text).to_bytes(8, 'little') + text + bytes(size)


def entry(**changes):
  own = {'dtype': 'F32', 'shape': [16], 'data_offsets': [0, 64]}
  return {'a': own | changes}


HOSTILE = {
  'empty': (b'', 'cannot mmap an empty file'),
  'short': (b'abc', 'a header of'),
  'a header of 2^63 bytes': (b'\xff' * 8 + b'{}', 'a header of 18,446,744'),
  'a longer header': (b'\x20' + bytes(15), 'a header of 32 bytes, of 8'),
  'no JSON': (with_header(b'{' * 9), 'property name'),
  'deep': (with_header(b'[' * 100_000), 'nested too deep'),
  'NaN': (with_header(b'{"a": NaN}'), 'NaN is not JSON'),
  'a list': (with_header([]), 'no object'),
  'numbers': (with_header({'a': 3}), "'a'"),
  'no dtype': (with_header({'a': {'shape': [1]}}), "'a'"),
  'objects': (with_header(entry(dtype='O')), "'O'"),
  'a text': (with_header(entry(shape='ab')), 'numbers'),
  'a negative side': (with_header(entry(shape=[-4, -4])), 'numbers'),
  'a true side': (with_header(entry(shape=[True, 16])), 'numbers'),
  'a side of 2^70': (with_header(entry(shape=[2**70])), 'has 64 bytes, not'),
  'another shape': (with_header(entry(shape=[17])), 'has 64 bytes, not 68'),
  'past the end': (
    with_header(entry(shape=[32], data_offsets=[0, 128])),
    'not where',
  ),
  'a hole': (
    with_header(entry(shape=[8], data_offsets=[32, 64])),
    'not where the one before it ends',
  ),
  'an overlap': (
    with_header(entry() | {'b': entry()['a']}),
    'not where the one before it ends',
  ),
  'a rest': (with_header(entry(), size=65), 'not all of it'),
  'metadata of numbers': (
    with_header(entry() | {'__metadata__': {'a': 1}}),
    'no texts',
  ),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_files(name, tmp_path):
  content, message = HOSTILE[name]
  path = tmp_path / 'x.safetensors'
  path.write_bytes(content)
  with pytest.raises(ValueError, match=re.escape(message)):
    mapped_tensors.Tensors(path)


def test_special_files_and_links_out_of_the_folder(tmp_path):
  (tmp_path / 'in').mkdir()
  path = tmp_path / 'in' / 'x.safetensors'
  os.mkfifo(path)
  with pytest.raises(ValueError, match='a pipe'):
    mapped_tensors.Tensors(path)
  path.unlink()
  path.symlink_to(write(tmp_path))
  with pytest.raises(ValueError, match='outside of'):
    mapped_tensors.Tensors(path, within=tmp_path / 'in')
