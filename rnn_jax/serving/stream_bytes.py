"""Streams of series as bytes, which a store may keep.

    state   SHA-256 of what follows, then safetensors: what the model carries,
            the scale and the covariates; its header names the series
    part    the shapes of readings and of covariates, int64; the readings,
            float64; the covariates of these and later times, float32

A part is what a stream reads at once. Read again after a state, parts give the
bits that the stream had (inference/series_streams.py).
"""

import hashlib
import struct
from collections.abc import Sequence

import jax
import numpy as np
import safetensors.numpy

from rnn_jax.data.series import scaling
from rnn_jax.inference import series_streams
from rnn_jax.serving import states

SHA256 = 32  # bytes
SIZES = '<4q'  # that begin a part


def like(model: series_streams.StreamReader) -> series_streams.Stream:
  """Returns a stream of a model, by which states are put together."""
  return series_streams.Stream(
    '',
    0,
    0,
    scaling.Scale(),
    model.reader.fresh,
    series_streams.NOTHING,
    model.covariates.like,
  )


def dump(stream: series_streams.Stream) -> bytes:
  """Returns the state of a stream, without its forecast."""
  leaves = jax.tree.leaves(_tree(stream))
  arrays = {
    f'{n:04}': np.ascontiguousarray(x) if np.ndim(x) else np.asarray(x)
    for n, x in enumerate(leaves)
  }
  header = {
    'name': stream.name,
    'start': str(stream.start),
    'count': str(stream.count),
  }
  content = safetensors.numpy.save(arrays, header)
  return hashlib.sha256(content).digest() + content


def load(
  state: bytes, like: series_streams.Stream
) -> series_streams.Stream | None:
  """Returns the stream of a state, without its forecast; None: it is damaged.

  Args:
    state: of `dump`.
    like: of `like`.
  """
  digest, content = state[:SHA256], state[SHA256:]
  if hashlib.sha256(content).digest() != digest:
    return None
  arrays = safetensors.numpy.load(content)
  leaves = [x if x.ndim else x.item() for _, x in sorted(arrays.items())]
  structure = jax.tree.structure(_tree(like))
  carry, scale, covariates = jax.tree.unflatten(structure, leaves)
  header = states.metadata(content)
  return like._replace(
    name=header['name'],
    start=int(header['start']),
    count=int(header['count']),
    scale=scale,
    carry=carry,
    covariates=covariates,
  )


def dump_part(stream: series_streams.Stream, values_NxT: np.ndarray) -> bytes:
  """Returns what a stream is about to read."""
  readings = values_NxT.astype('<f8', copy=False).tobytes()
  if (own := stream.covariates) is None:
    return struct.pack(SIZES, *values_NxT.shape, 0, 0) + readings
  moving_MxC = own.from_place(stream.count).astype('<f4')
  sizes = struct.pack(SIZES, *values_NxT.shape, *moving_MxC.shape)
  return sizes + readings + moving_MxC.tobytes()


def replay(
  stream: series_streams.Stream, parts: Sequence[bytes]
) -> tuple[series_streams.Stream, np.ndarray]:
  """Returns (a stream that knows what parts have, the readings of these).

  Args:
    stream: before the first part.
    parts: of `dump_part`, in order.
  """
  place, values = (
    stream.count,
    [np.zeros((0, len(stream.carry.window_BxTxW[0])))],
  )
  for part in parts:
    N, T, M, C = struct.unpack_from(SIZES, part)
    at = struct.calcsize(SIZES)
    values.append(np.frombuffer(part, '<f8', N * T, at).reshape(N, T))
    moving = np.frombuffer(part, '<f4', M * C, at + 8 * N * T)
    if (own := stream.covariates) is not None:
      own = own.with_rows(place, moving.reshape(M, C))
      stream = stream._replace(covariates=own)
    place += N
  return stream, np.concatenate(values)


def _tree(stream):
  return stream.carry, stream.scale, stream.covariates
