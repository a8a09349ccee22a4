"""The rules of the config's section `mesh`."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors


def refusal(cell='simple_rnn', **changes):
  """Returns the message that refuses a config with these keys."""
  raw = config_lib.default(cell)
  for key, value in changes.items():
    section, _, name = key.partition('__')
    raw[section][name] = value
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(raw)
  return str(caught.value)


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'mesh__data': 0}, 'mesh.data=0: give 1 or more, or -1'),
    ({'mesh__fsdp': -1}, 'mesh.data and mesh.fsdp are -1: only one'),
    (
      {'mesh__data': 1, 'mesh__pipe': -1},
      'mesh.pipe=-1: give its size: only data or fsdp can be',
    ),
    ({'mesh__zero': 4}, 'mesh.zero=4: give 0, 1, 2 or 3'),
    ({'mesh__rules': ('Q=fsdp',)}, "mesh.rules: 'Q=fsdp': write LETTER=AXIS"),
    ({'mesh__tensor': 3}, 'mesh.tensor=3: it must divide cell.heads=4'),
    (
      {'mesh__tensor': 4, 'model__mlp_width': 30},
      'mesh.tensor=4: it must divide model.mlp_width=30',
    ),
    (
      {'mesh__tensor': 2, 'cell__attention': 'dot'},
      'mesh.tensor=2: cell.attention reads all heads',
    ),
    ({'mesh__schedule': 'dual'}, "mesh.schedule='dual': choose one of"),
    (
      {'mesh__pipe': 2, 'mesh__schedule': '1f1b', 'remat__segment': 64},
      "mesh.schedule='1f1b': remat.segment needs 'gpipe'",
    ),
    ({'mesh__compression': 'zip'}, "mesh.compression='zip': choose one of"),
    (
      {'mesh__data': 1, 'mesh__compression': 'int8'},
      "mesh.compression='int8': mesh.data=1 has nothing to sum",
    ),
    ({'mesh__pipe': 4}, 'mesh.pipe=4: it must divide model.layers=2'),
    (
      {'mesh__sequence': 2},
      "mesh.sequence=2: data.layout='buckets' needs data.boundaries",
    ),
    (
      {'mesh__sequence': 3, 'data__layout': 'packed'},
      'mesh.sequence=3: it must divide the rows of 256 tokens',
    ),
    (
      {'mesh__fsdp': 2, 'optimizer__moments': 'int8'},
      "optimizer.moments='int8': its blocks would span the shards",
    ),
  ),
)
def test_impossible_meshes_are_refused(changes, message):
  assert message in refusal(**changes)


def test_int8_moments_go_with_copies():
  raw = config_lib.default()
  raw.mesh.data, raw.optimizer.moments = 8, 'int8'
  config_lib.parse(raw)
