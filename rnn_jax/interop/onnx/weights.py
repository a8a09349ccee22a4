"""Parameters of graphs, in one file that all of them read.

    float32    as they are
    float16, bfloat16    matrices in 16 bits, which a Cast makes float32
    int8       kernels and embeddings in 8 bits with a scale for each column of
               a kernel and each row of an embedding, DequantizeLinear

Other parameters are float32, and so is everything that is computed.
"""

import functools
import math
from collections.abc import Mapping
from typing import IO

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from rnn_jax.interop.onnx import graph as graph_lib
from rnn_jax.models import rounded_weights
from rnn_jax.ops import eight_bits

FILE = 'weights.bin'
FORMATS = ('float32', 'float16', 'bfloat16', 'int8')
HALVES = {'float16': jnp.float16, 'bfloat16': jnp.bfloat16}
PAGE = 4096  # where a large tensor begins, so that it can be mapped
ALIGNMENT = 64  # where others begin
SCALE = '.scale'


@functools.partial(jax.jit, static_argnums=1)
def _quantize(x, axis):
  return eight_bits.quantize(x, (axis,))


class Weights:
  """Parameters as they are stored.

  Attributes:
    arrays: by name, in the order of the file.
    size: of the file, in bytes.
  """

  def __init__(self, params: Mapping[str, np.ndarray], form: str) -> None:
    """Takes float32 parameters and one of FORMATS."""
    self.arrays: dict[str, np.ndarray] = {}
    self._axes: dict[str, int] = {}  # of the scales of those in 8 bits
    for name, x in params.items():
      self._add(name, np.asarray(x), form)
    self._offsets: dict[str, int] = {}
    self.size = 0
    for name, x in self.arrays.items():
      unit = PAGE if x.nbytes >= PAGE else ALIGNMENT
      self._offsets[name] = math.ceil(self.size / unit) * unit
      self.size = self._offsets[name] + x.nbytes

  def _add(self, name, x, form):
    summed = rounded_weights.SUMMED.get(name.rpartition('.')[2])
    if form == 'int8' and x.ndim == 2 and summed is not None:
      numbers, scale = jax.device_get(_quantize(jax.device_put(x), summed))
      self.arrays[name] = numbers
      self.arrays[name + SCALE] = scale.reshape(-1)
      self._axes[name] = 1 if summed == -2 else 0
    elif form in HALVES and x.ndim > 1:
      self.arrays[name] = x.astype(HALVES[form])
    else:
      self.arrays[name] = x.astype(np.float32)

  def read(self, graph: graph_lib.Graph, name: str) -> str:
    """Returns the name of a parameter in float32, a tensor of the graph."""
    self._declare(graph, name)
    if name in self._axes:
      self._declare(graph, name + SCALE)
      axis = self._axes[name]
      pair = name, name + SCALE
      whole = graph.node('DequantizeLinear', *pair, axis=axis)
      if axis == 0:
        graph.pack_rows(whole, *pair)
      return whole
    if self.arrays[name].dtype != np.float32:
      return graph.cast(name, np.float32)
    return name

  def _declare(self, graph, name):
    x = self.arrays[name]
    tensor = onnx.TensorProto(
      name=name,
      dims=x.shape,
      data_type=onnx.helper.np_dtype_to_tensor_dtype(x.dtype),
      data_location=onnx.TensorProto.EXTERNAL,
    )
    place = ('offset', self._offsets[name]), ('length', x.nbytes)
    for key, value in (('location', FILE), *place):
      tensor.external_data.add(key=key, value=str(value))
    graph.constants[name] = tensor

  def write(self, file: IO[bytes]) -> None:
    """Writes the tensors."""
    for name, x in self.arrays.items():
      file.seek(self._offsets[name])
      file.write(np.ascontiguousarray(x).tobytes())
