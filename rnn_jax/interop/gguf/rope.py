"""Rotary positions of a file, and rope_parameters of a config.json.

    rope.freq_base, rope.dimension_count
    rope.scaling.type, .factor, .original_context_length, .attn_factor
    the tensor rope_freqs.weight     what divides the frequencies, in Llama 3's

llama.cpp multiplies YaRN's attention factor by 1 + 0.1 ln(factor), and its
bands are those of 32 and 1 turns. Of Llama 3's scaling only the quotients are
in the file, which is read if they are those of its published bands.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.gguf import fields as fields_lib

TENSOR = 'rope_freqs.weight'
ORIGINAL = 'rope.scaling.original_context_length'
LLAMA3 = {'low_freq_factor': 1.0, 'high_freq_factor': 4.0}
LENGTH = 8192  # of the texts before Llama 3's scaling
YARN = {'beta_fast': 32.0, 'beta_slow': 1.0}
ABSENT = ('rope.scaling.alpha', 'rope.scaling.yarn_log_multiplier')


def write(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from rope_parameters."""
  given = theirs['rope_parameters']
  kind = given['rope_type']
  values = {'rope.freq_base': float(given['rope_theta'])}
  if kind in ('linear', 'yarn'):
    values['rope.scaling.type'] = kind
    values['rope.scaling.factor'] = float(given['factor'])
  if rotary.LENGTH in given:
    values[ORIGINAL] = int(given[rotary.LENGTH])
  if kind == 'yarn':
    own = given['attention_factor'] / _attention(given['factor'])
    values['rope.scaling.attn_factor'] = own
    values |= {f'rope.scaling.yarn_{name}': given[name] for name in YARN}
  return values


def read(fields: fields_lib.Fields, head: int, file: Any) -> dict[str, Any]:
  """Returns rope_parameters.

  Args:
    fields: of the file.
    head: channels of a head that rotate.
    file: a reader.File, which may have the tensor TENSOR.

  Raises:
    InputError: the scaling isn't supported.
  """
  for name in ABSENT:
    fields.absent(name)
  given: dict[str, Any] = {
    'rope_theta': fields.number('rope.freq_base', 10_000.0),
    'rope_type': 'default',
  }
  name = 'rope.scaling.type'
  # Without a factor, llama.cpp takes a linear scaling by 1.
  factor = fields.number('rope.scaling.factor', 0.0)
  kind = fields.one_of(name, ('none', 'linear', 'yarn'), 'linear')
  if TENSOR in file.tensors:
    return given | _llama3(fields, given['rope_theta'], head, file)
  if kind == 'none' or factor in (0, 1):
    return given
  given |= {'rope_type': kind, 'factor': factor}
  if kind == 'yarn':
    own = fields.number('rope.scaling.attn_factor', 1.0)
    context = fields.whole('context_length')
    given |= YARN
    given[rotary.LENGTH] = fields.whole(ORIGINAL, context)
    # Other factors than the usual one have few digits.
    size = _attention(factor)
    given['attention_factor'] = size if own == 1 else float(f'{own * size:.6g}')
  return given


def _attention(factor):
  return 1 + 0.1 * math.log(max(1, factor))


def quotients(theirs: Mapping[str, Any], head: int) -> np.ndarray | None:
  """Returns the tensor of a scaling that has one, from rope_parameters."""
  given = theirs['rope_parameters']
  if given['rope_type'] != 'llama3':
    return None
  turns = given['rope_theta'] ** (-np.arange(0, head, 2) / head) / (2 * np.pi)
  turns *= given[rotary.LENGTH]  # in the texts before
  low, high = given['low_freq_factor'], given['high_freq_factor']
  share = np.clip((turns - low) / (high - low), 0, 1)
  return (1 / (share + (1 - share) / given['factor'])).astype(np.float32)


def _llama3(fields, base, head, file):
  """Returns what has the file's quotients."""
  length = fields.whole(ORIGINAL, LENGTH)
  given = np.zeros(1)
  if file.tensors[TENSOR].shape == (head // 2,):
    given = file.read(TENSOR)
  scaling = {'rope_type': 'llama3', 'factor': float(given.max())}
  scaling |= LLAMA3 | {rotary.LENGTH: length}
  as_theirs = {'rope_parameters': scaling | {'rope_theta': base}}
  if not given.min() >= 1 or not np.allclose(
    quotients(as_theirs, head), given, rtol=1e-4, atol=0
  ):
    fields.refuse(
      'rope.freq_base',
      base,
      f"the quotients {TENSOR} aren't those of Llama 3's scaling of texts of "
      f'{length} tokens, which is supported',
    )
  return scaling
