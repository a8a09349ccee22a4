"""torch.nn.LSTM and torch.nn.GRU as cells, and back; PyTorch is not needed.

    weight_ih_l<n>    4S x D or 3S x D      the transposed projection/kernel
    weight_hh_l<n>    4S x S or 3S x S      the transposed recurrent/kernel
    bias_ih_l<n>, bias_hh_l<n>              projection/bias, their sum

Layer n reads the outputs of layer n - 1, as blocks of `model.block='plain'` do.
The gates lie in the same order, i, f, g, o and r, z, n. A GRU's second bias of
n stays apart, `candidate_bias`. On the way back all that was summed up is in
bias_ih, which is the same function; weights return bit for bit.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

GATES = {'lstm': 4, 'gru': 3}
NAMES = ('weight_ih', 'weight_hh', 'bias_ih', 'bias_hh')

Params = dict[str, Any]


def from_torch(cell: str, tensors: Mapping[str, Any]) -> list[Params]:
  """Reads the state dict of a torch.nn.LSTM or torch.nn.GRU.

  Args:
    cell: 'lstm' or 'gru'.
    tensors: by name, of any kind that NumPy reads; without biases (bias=False)
      they are zeros here.

  Returns:
    A cell's parameters for each layer, float32 arrays of NumPy.

  Raises:
    ValueError: another cell, names that are none of such a module's (of a
      bidirectional one, of one with proj_size), or shapes that disagree.
  """
  gates = _gates(cell)
  layers = sum(name.startswith('weight_ih_l') for name in tensors)
  known = {f'{name}_l{n}' for name in NAMES for n in range(layers)}
  if unknown := sorted({*tensors} - known):
    raise ValueError(
      f'tensors: {unknown[0]!r} is none of a {cell} that reads in one '
      f'direction without projections: it has {[f"{n}_l0" for n in NAMES]}'
    )
  if not layers:
    raise ValueError(f"tensors: no 'weight_ih_l0' among {sorted(tensors)}")
  return [_read_layer(cell, gates, tensors, n) for n in range(layers)]


def to_torch(cell: str, layers: Sequence[Params]) -> dict[str, np.ndarray]:
  """Returns the state dict of a module whose layers are these cells.

  Args:
    cell: 'lstm' or 'gru'.
    layers: a cell's parameters each.

  Raises:
    ValueError: another cell, or parameters that PyTorch's module lacks: an
      output matrix (state_width other than the width), reset='before'.
  """
  gates = _gates(cell)
  own = {'projection', 'recurrent', 'candidate_bias'}
  found = {}
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
      found[f'{name}_l{n}'] = array.copy()
  return found


def _gates(cell):
  if cell not in GATES:
    raise ValueError(f'cell={cell!r}: PyTorch has {[*GATES]}')
  return GATES[cell]


def _read_layer(cell, gates, tensors, n):
  weights = []
  for name in ('weight_ih', 'weight_hh'):
    if f'{name}_l{n}' not in tensors:
      raise ValueError(f"tensors: no '{name}_l{n}' among {sorted(tensors)}")
    weights.append(np.asarray(tensors[f'{name}_l{n}'], np.float32))
  of_input, of_state = weights
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
  apart = {}
  if cell == 'gru':
    apart = {'candidate_bias': second[2 * width :].copy()}
    second[2 * width :] = 0
  return {
    'projection': {
      'kernel': of_input.T.copy(),
      'bias': first + second,
    },
    'recurrent': {'kernel': of_state.T.copy()},
    **apart,
  }


def _check_shape(name, array, wanted):
  if array.shape != wanted:
    raise ValueError(f'tensors: {name} has shape {array.shape}, not {wanted}')
