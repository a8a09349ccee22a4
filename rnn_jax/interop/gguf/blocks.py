"""How numbers of a tensor are stored: as floats, or in blocks of a row.

    F32, F16, BF16     each number
    Q8_0               32 numbers: a scale in float16 and 8 bits each
    Q4_0               32 numbers: a scale in float16 and 4 bits each
    Q2_K ... Q6_K      256 numbers, with scales of parts of them
    and others that package `gguf` dequantizes

Package `gguf` converts them, as llama.cpp does. Matrices are written in the
chosen format; what isn't multiplied with, and a matrix whose rows aren't whole
blocks, in float32.
"""

import math
from typing import Any

import gguf
import numpy as np

from rnn_jax import errors

FORMATS = {  # of --dtype: the type of matrices, and of the file
  'float32': ('F32', gguf.LlamaFileType.ALL_F32),
  'float16': ('F16', gguf.LlamaFileType.MOSTLY_F16),
  'bfloat16': ('BF16', gguf.LlamaFileType.MOSTLY_BF16),
  'q8_0': ('Q8_0', gguf.LlamaFileType.MOSTLY_Q8_0),
  'q4_0': ('Q4_0', gguf.LlamaFileType.MOSTLY_Q4_0),
}
FLOAT = 'F32'
KINDS = (  # which can be read
  *('F32', 'F16', 'BF16'),
  *('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0'),
  *('Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K'),
  *('IQ4_NL', 'IQ4_XS', 'TQ1_0', 'TQ2_0', 'MXFP4'),
)
WHOLE = {  # matrices that llama.cpp has in float32
  'position_embd',
  'conv',
  'ffn_gate_inp',
  'ffn_gate_inp_shexp',
  'ssm_conv1d',
  'ssm_conv1d_q',
  'ssm_conv1d_k',
  'ssm_conv1d_v',
  'time_mix_w1',
  'time_mix_w2',
  'time_mix_lerp_fused',
}
MAX_DIMENSION = 2**48


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
  """Returns a shape without axes of 1 before the others, as ggml adds them."""
  begin = next((n for n, x in enumerate(shape) if x != 1), len(shape) - 1)
  return shape[begin:]


def name_of(kind: int, tensor: str) -> str:
  """Returns the name of a type, or raises ValueError about the tensor."""
  known = {x.value: x.name for x in gguf.GGMLQuantizationType}
  name = known.get(kind, str(kind))
  if name not in KINDS:
    raise ValueError(
      f'tensor {tensor} is of type {name}, and {", ".join(KINDS)} can be read'
    )
  return name


def nbytes(shape: tuple[int, ...], kind: str, tensor: str) -> int:
  """Returns the bytes of a tensor, or raises ValueError about its shape."""
  block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
  if not all(0 < x <= MAX_DIMENSION for x in shape) or shape[-1] % block:
    raise ValueError(f'tensor {tensor} of type {kind} has the shape {shape}')
  return math.prod(shape) // block * size


def kind_of(name: str, shape: tuple[int, ...], form: str) -> str:
  """Returns the type in which a tensor is written.

  Args:
    name: of the tensor, as 'blk.3.attn_q.weight'.
    shape: of the tensor.
    form: one of FORMATS.
  """
  kind, _ = FORMATS[form]
  *_, part, last = name.split('.')
  block, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
  floats = (
    len(shape) < 2
    or last != 'weight'
    or part in WHOLE
    or part.endswith('_norm')
    or shape[-1] % block
  )
  return FLOAT if floats else kind


def encode(x: np.ndarray, kind: str, name: str) -> np.ndarray:
  """Returns float32 numbers as they are stored; bytes, if that is in blocks.

  Raises:
    InputError: a number is too large for the type.
  """
  with np.errstate(over='ignore', invalid='ignore'):
    y = gguf.quants.quantize(
      np.ascontiguousarray(x), gguf.GGMLQuantizationType[kind]
    )
  finite: Any = np.isfinite(x).all()
  if kind == 'F16' and finite and not np.isfinite(y).all():
    raise errors.InputError(
      f'{name} has numbers up to {np.abs(x).max():.2g}, too large for float16: '
      "give --dtype=bfloat16, or 'float32'"
    )
  return y


def decode(data: np.ndarray, kind: str, shape: tuple[int, ...]) -> np.ndarray:
  """Returns the float32 numbers of bytes."""
  form = gguf.GGMLQuantizationType[kind]
  stored = gguf.quants.quant_shape_to_byte_shape(shape, form)
  return gguf.quants.dequantize(data.reshape(stored), form).reshape(shape)
