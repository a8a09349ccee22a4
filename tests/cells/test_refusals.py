"""What the config of each cell refuses: the key, its value and the remedy."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors

ROW = 'model.cell={!r}: give mesh.sequence=1'
SEQUENCE = ({'mesh.sequence': 2}, 'mesh.sequence=2: not available with ')
CUDNN = "recurrence.impl='cudnn'"
BFLOAT16 = {'recurrence.impl': 'cudnn', 'train.precision': 'bfloat16'}
SHARDED = {'mesh.sequence': 2, 'data.layout': 'stream'}
REFUSED = {  # of each cell: what is changed, the message or its beginning
  'simple_rnn': (
    *(
      ({'remat.every': every}, f'remat.every={every}: give up to 16 or a mult')
      for every in (17, 24, 100)
    ),
    (
      {'cell.groups': 2},
      "cell.groups=2: it has no effect without cell.preset='coupled'",
    ),
    (
      {'cell.skip': False},
      "cell.skip=False: it has no effect without cell.preset='coupled'",
    ),
    (
      {'cell.preset': 'coupled', 'cell.groups': 3},
      'cell.groups=3: it must divide cell.heads=4',
    ),
    (
      {'cell.preset': 'coupled', 'mesh.tensor': 2},
      'cell.groups=1: mesh.tensor=2 must divide it',
    ),
  ),
  'min_lstm': (SEQUENCE,),
  'lstm': (
    SEQUENCE,
    (
      {'recurrence.impl': 'chunked'},
      "recurrence.impl='chunked': model.cell='lstm' has ('auto', 'scan', ",
    ),
  ),
  'gru': (SEQUENCE,),
  'rhn': (SEQUENCE,),
  'slstm': (
    SEQUENCE,
    (
      {'cell.heads': 3, 'model.width': 64},
      'cell.heads=3: they must divide the 64 units of the state',
    ),
    (
      {'cell.forget_gate': 'tanh'},
      "cell.forget_gate='tanh': choose one of ('sigmoid', 'exponential')",
    ),
  ),
  'qrnn': (
    (
      {'recurrence.impl': 'pallas'},
      "recurrence.impl='pallas': model.cell='qrnn' has ('auto', 'scan'",
    ),
    (
      SHARDED | {'remat.every': 16},
      "remat.every=16: with mesh.sequence=2 model.cell='qrnn' stores all "
      'states: give 0',
    ),
    (
      {'model.block': 'plain', 'model.embedding_width': 32},
      "model.embedding_width=32: model.cell='qrnn' stores inputs of one width",
    ),
  ),
  'deltanet': (
    ({'cell.max_beta': 3.0}, 'cell.max_beta=3.0: give a number above 0, up to'),
  ),
  'deltaproduct': (
    ({'cell.householders': 0}, 'cell.householders=0: give 1 or more'),
  ),
  'log_linear_mamba2': (
    ({'cell.levels': 0}, 'cell.levels=0: give 1 or more'),
    ({'cell.groups': 3}, 'cell.groups=3: it must divide cell.heads=4'),
  ),
  'gated_deltanet': (
    ({'cell.value_heads': 6}, 'cell.value_heads=6: cell.heads=4 must divide'),
    (
      {'cell.norm_scale': True, 'mesh.tensor': 2},
      'cell.norm_scale=True: all heads share it, and mesh.tensor=2 devices sha',
    ),
  ),
  'kda': (
    (
      {'mesh.sequence': 2},
      "mesh.sequence=2: not available with model.cell='kda': give "
      'mesh.sequence=1',
    ),
  ),
  'rwkv7': (
    (
      {'cell.value_rank': 3},
      'cell.value_rank=3: it has no effect without cell.value_residual',
    ),
    (
      {'recurrence.impl': 'associative'},
      "recurrence.impl='associative': model.cell='rwkv7' has ('auto'",
    ),
    (
      {'model.block': 'plain', 'model.embedding_width': 32},
      "model.embedding_width=32: model.cell='rwkv7' stores inputs of one width",
    ),
  ),
  'gla': (
    (
      {'recurrence.chunk_length': 40},
      'recurrence.chunk_length=40: give up to 16 or a multiple of it, or use '
      "recurrence.impl='scan'",
    ),
  ),
  'retnet': (
    ({'cell.key_width': 3}, 'cell.key_width=3: rotary positions need an even'),
    ({'cell.rotary': 1.0}, 'cell.rotary=1.0: give a number above 1'),
  ),
  'mamba2': (
    ({'cell.groups': 3}, 'cell.groups=3: it must divide cell.heads=4'),
    ({'mesh.tensor': 2}, 'cell.groups=1: mesh.tensor=2 must divide it'),
    ({'cell.convolution': 0}, 'cell.convolution=0: give 1'),
  ),
  'mamba3': (
    ({'cell.groups': 3}, 'cell.groups=3: it must divide cell.heads=4'),
    ({'mesh.tensor': 2}, 'cell.groups=1: mesh.tensor=2 must divide it'),
    ({'cell.angles': 9}, 'cell.angles=9: give up to 8'),
    ({'cell.mimo_rank': 0}, 'cell.mimo_rank=0: give 1 or more'),
    (
      {'cell.mimo_rank': 4, 'mesh.sequence': 2},
      "mesh.sequence=2: not available with model.cell='mamba3'",
    ),
    ({'cell.key_width': 1}, 'cell.key_width=1: give 2 or more'),
    (
      {'cell.norm_scale': True},
      'cell.norm_scale=True: it has no effect without cell.output_norm',
    ),
  ),
  'mamba': (
    (
      {'mesh.tensor': 3},
      'mesh.tensor=3: it must divide the 256 channels of cell.inner_width=256',
    ),
    (
      {'recurrence.impl': 'pallas'},
      "recurrence.impl='pallas': model.cell='mamba' has ('auto', 'scan'",
    ),
  ),
  'short_convolution': (
    (
      {'mesh.tensor': 3},
      'mesh.tensor=3: it must divide the 128 channels of cell.inner_width=128',
    ),
    ({'cell.convolution': 0}, 'cell.convolution=0: give 1'),
  ),
  'mlstm': (SEQUENCE,),
  'rg_lru': (
    (
      {'recurrence.impl': 'pallas'},
      "recurrence.impl='pallas': model.cell='rg_lru' has ('auto', 'scan'",
    ),
  ),
  'attention': (
    ({'cell.heads': 0}, 'cell.heads=0: give 1 or more'),
    ({'cell.window': -1}, 'cell.window=-1: give 0 or more'),
    (
      {'cell.window': 257},
      'cell.window=257: above data.length=256: give 0 for all of a row',
    ),
    (
      {'cell.window': 300, 'data.layout': 'stream'},
      'cell.window=300: above data.length=256',
    ),
    (
      {'cell.rotary': 1.0},
      'cell.rotary=1.0: give a number above 1, or 0 for no positions',
    ),
    (
      {'cell.head_width': 5},
      'cell.head_width=5: rotary positions need an even number',
    ),
    (
      {'cell.rotary_width': 5},
      'cell.rotary_width=5: rotary positions need an even number',
    ),
    (
      {'cell.rotary_width': 34},
      'cell.rotary_width=34: give up to cell.head_width=32',
    ),
    ({'cell.kv_heads': 3}, 'cell.kv_heads=3: it must divide cell.heads=4'),
    *(
      (
        {'cell.rotary_scaling': scaling},
        f'cell.rotary_scaling={scaling!r}: give (), (factor,)',
      )
      for scaling in (
        (0.5,),
        (8.0, 1.0),
        (8.0, 4.0, 1.0, 9.0),
        (8.0, 1.0, 4.0, 9.0, 0.0),
      )
    ),
    (
      {'cell.qk_norm': True, 'cell.norm_epsilon': 0.0},
      'cell.norm_epsilon=0.0: give a number above 0 as float32',
    ),
    (
      {'cell.biases': True}
      | {'cell.projection_bias': False, 'cell.output_bias': False},
      'cell.biases=True: neither cell.projection_bias nor cell.output_bias has '
      'one: give False',
    ),
    (
      {'cell.kv_heads': 2, 'mesh.tensor': 4},
      'cell.kv_heads=2: mesh.tensor=4 must divide it',
    ),
    *(
      (
        {'recurrence.impl': impl},
        f"recurrence.impl={impl!r}: model.cell='attention' has "
        "('auto', 'scan', 'exact', 'blocked', 'cudnn')",
      )
      for impl in ('associative', 'chunked', 'pallas')
    ),
    (
      {'recurrence.impl': 'cudnn'},
      f"{CUDNN}: train.precision='float32' stores float32: give 'bfloat16'",
    ),
    (
      BFLOAT16 | {'cell.top_k': 8},
      f"cell.top_k=8: {CUDNN} has no top_k: use 'blocked' or 'exact'",
    ),
    (
      BFLOAT16 | {'cell.head_width': 12},
      f'cell.head_width=12: {CUDNN} needs a multiple of 8, 256 at most',
    ),
  ),
  'latent_attention': (
    SEQUENCE,
    (
      {'cell.rotary': 1.0},
      'cell.rotary=1.0: give a number above 1, or 0 for no positions',
    ),
    (
      {'cell.shared_width': 3},
      'cell.shared_width=3: rotary positions need an even number',
    ),
    (
      {'cell.window': 257},
      'cell.window=257: above data.length=256: give 0 for all of a row',
    ),
    (
      {'recurrence.impl': 'cudnn'},
      "recurrence.impl='cudnn': model.cell='latent_attention' has "
      "('auto', 'scan', 'exact', 'blocked')",
    ),
  ),
  'bdh': (
    ({'cell.neurons': 3}, 'cell.neurons=3: rotary angles rotate pairs'),
    ({'cell.rotary': 1.0}, 'cell.rotary=1.0: give a number above 1'),
    (
      {'cell.weights': 'softmax'},
      "cell.weights='softmax': it has no recurrent form: give 'linear'",
    ),
    (
      {'cell.sees': 'row'},
      "cell.sees='row': rows of task.name='language_modeling' have padding",
    ),
    ({'cell.sees': 'all'}, "cell.sees='all': choose one of"),
    (
      {'recurrence.impl': 'pallas'},
      "recurrence.impl='pallas': model.cell='bdh' has",
    ),
    (
      {'recurrence.impl': 'state'},
      "recurrence.impl='state': model.cell='bdh' has ('auto', 'scan', 'pairs', "
      "'chunked', 'associative')",
    ),
    (
      {'model.shared_layers': True, 'mesh.pipe': 2},
      'mesh.pipe=2: not available with model.shared_layers=True',
    ),
  ),
}


def parsed(cell, changes):
  raw = config_lib.default(cell)
  raw.update_from_flattened_dict(changes)
  return config_lib.parse(raw)


@pytest.mark.parametrize(
  ('cell', 'changes', 'message'),
  [(cell, *row) for cell, rows in REFUSED.items() for row in rows],
  ids=lambda value: value if isinstance(value, str) else '',
)
def test_a_wrong_option_is_refused(cell, changes, message):
  with pytest.raises(errors.InputError) as caught:
    parsed(cell, changes)
  assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
  ('cell', 'changes'),
  (
    *(
      ('simple_rnn', {'remat.every': every})
      for every in (0, 1, 7, 16, 48, 'sqrt')
    ),
    ('simple_rnn', {'remat.every': 17, 'recurrence.impl': 'scan'}),
    (
      'simple_rnn',
      {'cell.preset': 'coupled', 'cell.groups': 2, 'mesh.tensor': 2},
    ),
    ('attention', BFLOAT16),
  ),
)
def test_other_options_are_taken(cell, changes):
  parsed(cell, changes)


def test_a_window_of_0_is_the_length_of_a_row():
  config = parsed('attention', {'data.length': 96})
  assert config.cell.window == 96
  assert config_lib.parse(config_lib.to_dict(config)) == config


def test_a_carried_state_may_reach_beyond_its_row():
  changes = {'cell.window': 300, 'data.layout': 'stream'}
  config = parsed('attention', changes | {'data.carry_state': True})
  assert config.cell.window == 300
