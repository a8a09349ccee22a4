"""Which formats there are, and where they may write."""

import pytest

from rnn_jax import errors
from rnn_jax.interop import request


def test_formats_are_found_by_what_they_do():
  assert request.find('hf', 'read').__name__.endswith('formats.hf')
  for direction, names in (
    ('read', "['gguf', 'hf', 'safetensors', 'torch_simple_rnn']"),
    (
      'write',
      "['gguf', 'hf', 'onnx', 'safetensors', 'stablehlo', 'torch_simple_rnn']",
    ),
  ):
    with pytest.raises(errors.InputError) as caught:
      request.find('keras', direction)
    assert str(caught.value) == f"--format='keras': choose one of {names}"


@pytest.mark.parametrize(
  ('size', 'nbytes'),
  (('17', 17), ('3KB', 3000), ('500M', 5 * 10**8), ('2gb', 2 * 10**9)),
)
def test_a_size_is_a_number_of_bytes(size, nbytes):
  assert request.nbytes(size) == nbytes


@pytest.mark.parametrize('size', ('', '0', '0GB', '-1', '1.5GB', '2TB', 'GB'))
def test_another_size_is_refused(size):
  with pytest.raises(errors.InputError, match='--max_shard_size='):
    request.nbytes(size)


def test_an_output_is_new_and_its_folder_is_there(tmp_path):
  request.check_absent(tmp_path / 'new')
  with pytest.raises(errors.InputError, match='already exists'):
    request.check_absent(tmp_path)
  with pytest.raises(errors.InputError, match='there is no folder'):
    request.check_absent(tmp_path / 'a' / 'b')
