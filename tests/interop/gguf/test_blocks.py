"""Blocks: numbers of package `gguf` to the bit, and what is kept whole."""

import gguf
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.interop.gguf import blocks
from rnn_jax.interop.gguf import reader
from rnn_jax.ops import products
from rnn_jax.ops.products import formats
from rnn_jax.runs import bundle as bundle_lib
from tests.interop.gguf import models

QUANTIZED = [x for x in blocks.KINDS if x not in ('F32', 'F16')]


@pytest.mark.parametrize('kind', QUANTIZED)
def test_blocks_have_the_numbers_of_package_gguf(kind, tmp_path):
  form = gguf.GGMLQuantizationType[kind]
  block, size = gguf.GGML_QUANT_SIZES[form]
  rows, columns = 3, 2 * block
  rng = np.random.default_rng(0)
  bytes_ = rng.integers(0, 256, (rows, 2 * size), np.uint8)
  if kind == 'MXFP4':
    bytes_[:, ::size] = 120  # exponents that are finite
  path = tmp_path / 'a.gguf'
  writer = gguf.GGUFWriter(path, 'llama')
  writer.add_tensor('a.weight', bytes_, raw_dtype=form)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  file = reader.read(path)
  assert file.tensors['a.weight'].shape == (rows, columns)
  theirs = gguf.GGUFReader(path).tensors[0]
  want = gguf.quants.dequantize(theirs.data, form)
  got = file.read('a.weight')
  assert got.tobytes() == want.tobytes() and got.shape == want.shape


@pytest.mark.parametrize('form', blocks.FORMATS)
def test_matrices_are_written_in_the_format_and_read_again(form, tmp_path):
  bundle = models.make('mamba2')
  path = models.write(bundle, tmp_path / 'out', dtype=form)
  kind, _ = blocks.FORMATS[form]
  file = reader.read(path)
  kinds = {name: x.kind for name, x in file.tensors.items()}
  floats = {'F32'} if kind == 'F32' else {'F32', kind}
  assert {*kinds.values()} == floats
  assert kinds['blk.0.ssm_in.weight'] == kind
  assert kinds['blk.0.ssm_conv1d.weight'] == kinds['blk.0.ssm_a'] == 'F32'
  assert kinds['output_norm.weight'] == kinds['blk.1.ssm_norm.weight'] == 'F32'
  again = models.write(bundle, tmp_path / 'again', dtype=form)
  assert again.read_bytes() == path.read_bytes()
  theirs = {x.name: x for x in gguf.GGUFReader(path).tensors}
  assert theirs.keys() == file.tensors.keys()
  for name, x in theirs.items():
    want = gguf.quants.dequantize(x.data, x.tensor_type)
    np.testing.assert_array_equal(file.read(name).ravel(), want.ravel())
  step = {'float32': 0, 'float16': 2**-11, 'bfloat16': 2**-8}
  step |= {'q8_0': 1 / 100, 'q4_0': 1 / 6}  # of the largest of a block
  back = bundle_lib.flat(models.read(path).params)
  for name, x in bundle_lib.flat(bundle.params).items():
    if not name.endswith('log_rate'):
      error = np.abs(back[name] - x).max()
      assert error <= step[form] * np.abs(x).max(), name


@pytest.mark.parametrize(
  ('kind', 'format'), (('Q8_0', 'int8_blocks'), ('Q4_0', 'int4'))
)
@pytest.mark.parametrize('impl', ('plain', 'auto'))
def test_packing_what_was_in_blocks_rounds_nothing_again(kind, format, impl):
  rng = np.random.default_rng(0)
  w_FxK = rng.normal(size=(40, 320)) * np.exp(rng.normal(0, 3, (40, 1)))
  w_FxK[3], w_FxK[4, :32] = 0, 0
  w_FxK[5] = np.round(3 * w_FxK[5] / np.abs(w_FxK[5]).max())
  form = gguf.GGMLQuantizationType[kind]
  theirs = gguf.quants.quantize(w_FxK.astype(np.float32), form)
  want_FxK = gguf.quants.dequantize(theirs, form)
  packed = products.pack(want_FxK.T.copy(), format, impl)
  got_FxK = np.asarray(products.unpack(packed)).T
  np.testing.assert_array_equal(got_FxK, want_FxK)
  rounded = formats.quantize(want_FxK.T.copy(), format)
  scales_FxN = theirs.reshape(40, 10, -1)[..., :2].copy().view(np.float16)
  np.testing.assert_array_equal(
    np.asarray(rounded.scales).T, scales_FxN[..., 0]
  )


def test_rows_that_are_not_whole_blocks_stay_as_they_are(tmp_path):
  bundle = models.make('mamba', time_step_rank=5)
  file = reader.read(models.write(bundle, tmp_path / 'a', dtype='q4_0'))
  kinds = {name: x.kind for name, x in file.tensors.items()}
  assert kinds['blk.0.ssm_dt.weight'] == 'F32'
  assert kinds['blk.0.ssm_out.weight'] == 'Q4_0'


def test_numbers_too_large_for_16_bits_are_refused(tmp_path):
  bundle = models.make('mamba2')
  bundle.params['embedding']['embedding'][3, 4] = 1e6
  with pytest.raises(errors.InputError, match='token_embd.* too large'):
    models.write(bundle, tmp_path / 'out', dtype='float16')
  assert not (tmp_path / 'out').exists()
  models.write(bundle, tmp_path / 'out', dtype='bfloat16')


def test_an_unknown_format_is_refused(tmp_path):
  for form in ('int8', 'Q8_0'):
    with pytest.raises(errors.InputError, match='--dtype'):
      models.write(models.make('mamba2'), tmp_path / 'out', dtype=form)
