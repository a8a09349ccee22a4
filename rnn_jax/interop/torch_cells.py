"""Converts torch.nn.LSTM and torch.nn.GRU to cells and back, without PyTorch.

    weight_ih_l<n>    4S x D or 3S x D      the transposed projection/kernel
    weight_hh_l<n>    4S x S or 3S x S      the transposed recurrent/kernel
    bias_ih_l<n>, bias_hh_l<n>              projection/bias, their sum

Layer n reads the outputs of layer n - 1, as blocks of `model.block='plain'` do.
The gates have the same order, i, f, g, o and r, z, n. A GRU's second bias of n
is separate, `candidate_bias`. On the way back bias_ih has the sum of both,
which is the same function; weights are the same bit for bit.

A module with bidirectional=True has a second set of names, with the suffix
`_reverse`; the layers are pairs of cells, those of blocks with
`model.bidirectional`, or of layers.Bidirectional.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

GATES = {'lstm': 4, 'gru': 3}
NAMES = ('weight_ih', 'weight_hh', 'bias_ih', 'bias_hh')

REVERSE = '_reverse'

Params = dict[str, Any]


class Both(NamedTuple):
  """The parameters of the two cells of a layer."""

  forward: Params
  backward: Params


def from_torch(cell: str, tensors: Mapping[str, Any]) -> list[Params]:
  """Reads the state dict of a torch.nn.LSTM or torch.nn.GRU.

  Args:
    cell: 'lstm' or 'gru'.
    tensors: by name, of any type that NumPy reads; missing biases
      (bias=False) become zeros.

  Returns:
    A cell's parameters for each layer, float32 NumPy arrays.

  Raises:
    ValueError: another cell, unknown names (of a bidirectional module, which
      `both_from_torch` reads, or one with proj_size), or shapes that disagree.
  """
  gates = _gates(cell)
  layers = sum(name.startswith('weight_ih_l') for name in tensors)
  known = {f'{name}_l{n}' for name in NAMES for n in range(layers)}
  if any(name.endswith(REVERSE) for name in tensors):
    raise ValueError(
      f'tensors: a {cell} of two directions: call both_from_torch'
    )
  if unknown := sorted({*tensors} - known):
    raise ValueError(
      f'tensors: {unknown[0]!r} is unknown: a {cell} without '
      f'projections has {[f"{n}_l0" for n in NAMES]}'
    )
  if not layers:
    raise ValueError(f"tensors: no 'weight_ih_l0' among {sorted(tensors)}")
  return [_read_layer(cell, gates, tensors, n) for n in range(layers)]


def to_torch(cell: str, layers: Sequence[Params]) -> dict[str, np.ndarray]:
  """Returns the state dict of a module whose layers are these cells.

  Args:
    cell: 'lstm' or 'gru'.
    layers: the parameters of each cell.

  Raises:
    ValueError: another cell, or parameters that PyTorch's module lacks: an
      output matrix (state_width other than the width), reset='before'.
  """
  gates = _gates(cell)
  own = {'projection', 'recurrent', 'candidate_bias'}
  tensors = {}
  for n, params in enumerate(layers):
    if foreign := sorted({*params} - own):
      raise ValueError(
        f'layers[{n}]: torch.nn.{cell.upper()} has no {foreign[0]!r}: give '
        "cells with state_width equal to the model's and reset='after'"
      )
    bias = np.asarray(params['projection']['bias'])
    second = np.zeros_like(bias)
    if cell == 'gru':
      width = len(bias) // gates
      second[2 * width :] = params['candidate_bias']
    arrays = (
      np.asarray(params['projection']['kernel']).T,
      np.asarray(params['recurrent']['kernel']).T,
      bias,
      second,
    )
    for name, array in zip(NAMES, arrays, strict=True):
      tensors[f'{name}_l{n}'] = array.copy()
  return tensors


def both_from_torch(cell: str, tensors: Mapping[str, Any]) -> list[Both]:
  """Reads the state dict of a module with bidirectional=True.

  Args:
    cell: 'lstm' or 'gru'.
    tensors: by name, as of `from_torch`.

  Returns:
    The parameters of each layer's two cells, float32 NumPy arrays.

  Raises:
    ValueError: as `from_torch`, or a direction or its layers are missing.
  """
  backward = {
    name.removesuffix(REVERSE): x
    for name, x in tensors.items()
    if name.endswith(REVERSE)
  }
  forward = {
    name: x for name, x in tensors.items() if not name.endswith(REVERSE)
  }
  if {*forward} != {*backward}:
    (*_, name) = sorted({*forward} ^ {*backward})
    raise ValueError(
      f'tensors: {name!r} is there in one direction only: give the state dict '
      'of a module with bidirectional=True'
    )
  both = zip(from_torch(cell, forward), from_torch(cell, backward), strict=True)
  return [Both(*pair) for pair in both]


def both_to_torch(cell: str, layers: Sequence[Both]) -> dict[str, np.ndarray]:
  """Returns the state dict of a module with bidirectional=True.

  Args:
    cell: 'lstm' or 'gru'.
    layers: the parameters of each layer's two cells.

  Raises:
    ValueError: as `to_torch`.
  """
  forward = to_torch(cell, [layer.forward for layer in layers])
  backward = to_torch(cell, [layer.backward for layer in layers])
  return forward | {f'{name}{REVERSE}': x for name, x in backward.items()}


def _gates(cell):
  if cell not in GATES:
    raise ValueError(f'cell={cell!r}: PyTorch has {[*GATES]}')
  return GATES[cell]


def _read_layer(cell, gates, tensors, n):
  for name in ('weight_ih', 'weight_hh'):
    if f'{name}_l{n}' not in tensors:
      raise ValueError(f"tensors: no '{name}_l{n}' among {sorted(tensors)}")
  of_input, of_state = (
    np.asarray(tensors[f'{name}_l{n}'], np.float32)
    for name in ('weight_ih', 'weight_hh')
  )
  width = of_state.shape[-1]
  _check_shape(f'weight_hh_l{n}', of_state, (gates * width, width))
  _check_shape(f'weight_ih_l{n}', of_input, (gates * width, of_input.shape[-1]))
  zeros = np.zeros(gates * width, np.float32)
  first, second = (
    np.asarray(tensors.get(f'{name}_l{n}', zeros), np.float32).copy()
    for name in ('bias_ih', 'bias_hh')
  )
  for name, bias in (('bias_ih', first), ('bias_hh', second)):
    _check_shape(f'{name}_l{n}', bias, zeros.shape)
  extra = {}
  if cell == 'gru':
    extra = {'candidate_bias': second[2 * width :].copy()}
    second[2 * width :] = 0
  return {
    'projection': {'kernel': of_input.T.copy(), 'bias': first + second},
    'recurrent': {'kernel': of_state.T.copy()},
    **extra,
  }


def _check_shape(name, array, wanted):
  if array.shape != wanted:
    raise ValueError(f'tensors: {name} has shape {array.shape}, not {wanted}')
