"""What the config of each cell refuses: the key, its value and the remedy."""

import pytest

from tests.cells import equations

REFUSED = {  # of each cell: section, key, value, a part of the message
  'min_lstm': (
    (
      'mesh',
      'sequence',
      2,
      "model.cell='min_lstm' runs a row step by step: give 1",
    ),
  ),
  'lstm': (
    ('cell', 'state_width', -1, 'give 1 or more, or 0'),
    ('cell', 'dropout', 1.0, 'give a number in'),
    ('mesh', 'sequence', 2, "model.cell='lstm' runs a row"),
    ('recurrence', 'impl', 'chunked', 'model.cell='),
  ),
  'gru': (
    ('cell', 'reset', 'never', "choose one of ('after', 'before')"),
    ('mesh', 'sequence', 2, "model.cell='gru' runs a row step by step"),
  ),
  'rhn': (
    ('cell', 'depth', 0, 'give 1 or more'),
    ('mesh', 'sequence', 2, "model.cell='rhn' runs a row step by step"),
  ),
  'qrnn': (
    ('cell', 'taps', 0, 'give 1 or more'),
    ('cell', 'pooling', 'max', "choose one of ('f', 'fo', 'ifo')"),
    ('recurrence', 'impl', 'pallas', "model.cell='qrnn' has ('auto', 'scan'"),
  ),
  'deltanet': (
    ('cell', 'heads', 0, 'give 1 or more'),
    ('cell', 'convolution', -1, 'give the number of taps, or 0'),
    ('cell', 'max_beta', 3.0, 'give a number above 0, up to 2'),
  ),
  'gated_deltanet': (
    ('cell', 'value_heads', -4, 'give 0 or more'),
    ('cell', 'value_heads', 6, 'cell.heads=4 must divide it'),
  ),
  'kda': (
    ('cell', 'rank', 0, 'give 1 or more'),
    ('cell', 'norm_epsilon', 0.0, 'give a number above 0'),
    ('mesh', 'sequence', 2, "model.cell='kda' runs a row on one device"),
  ),
  'rwkv7': (
    ('cell', 'rank', 0, 'give 1 or more'),
    ('cell', 'gate_rank', -1, 'give 1 or more, or 0 for cell.rank=16'),
    ('cell', 'value_rank', 3, 'it has no effect without cell.value_r'),
    ('cell', 'norm_epsilon', 0.0, 'give a number above 0'),
    ('cell', 'key_epsilon', 0.0, 'give a number above 0'),
    ('recurrence', 'impl', 'associative', "model.cell='rwkv7' has ('auto'"),
  ),
  'gla': (
    ('cell', 'rank', 0, 'cell.rank=0: give 1 or more'),
    ('cell', 'temperature', 0.0, 'give a number above 0'),
    ('cell', 'heads', 0, 'cell.heads=0: give 1 or more'),
    ('recurrence', 'chunk_length', 40, "or use recurrence.impl='scan'"),
  ),
  'hgrn2': (('cell', 'lower_bound', 1.0, 'give a number in [0, 1)'),),
  'retnet': (
    ('cell', 'key_width', 3, 'rotary positions need an even number'),
    ('cell', 'rotary', 1.0, 'give a number above 1'),
  ),
  'mamba2': (
    ('cell', 'groups', 3, 'it must divide cell.heads=4'),
    ('mesh', 'tensor', 2, 'mesh.tensor=2 must divide it'),
    ('cell', 'convolution', 0, 'give 1 tap or more'),
  ),
  'mamba': (
    ('cell', 'inner_width', -1, 'or 0 for one by model.width'),
    ('cell', 'key_width', 0, 'give 1 or more'),
    ('mesh', 'tensor', 3, 'the 256 channels of cell.inner_width=256'),
    ('recurrence', 'impl', 'pallas', "has ('auto', 'scan'"),
  ),
  'mlstm': (
    ('cell', 'gate_cap', -1.0, 'cell.gate_cap=-1.0: give 0 or more'),
    ('cell', 'norm', 'standard', "choose one of ('rms', 'layer'"),
    ('mesh', 'sequence', 2, 'on one device'),
  ),
  'rg_lru': (
    ('cell', 'head_width', 0, 'give 1 or more'),
    ('recurrence', 'impl', 'pallas', "has ('auto', 'scan'"),
  ),
  'latent_attention': (
    ('cell', 'kv_rank', 0, 'give 1 or more'),
    ('cell', 'query_rank', -1, 'give 0 or more'),
    ('cell', 'rotary', 1.0, 'give a number above 1, or 0 for no positions'),
    ('cell', 'shared_width', 3, 'rotary positions need an even number'),
    ('cell', 'norm_epsilon', 0.0, 'give a number above 0'),
    ('cell', 'dropout', 1.0, 'give a number in [0, 1)'),
    ('cell', 'window', 257, 'above data.length=256: give 0 for all of a row'),
    ('mesh', 'sequence', 2, "model.cell='latent_attention' runs a row on one"),
    ('recurrence', 'impl', 'cudnn', "has ('auto', 'scan', 'exact', 'blocked')"),
  ),
}


@pytest.mark.parametrize(
  ('cell', 'section', 'key', 'value', 'message'),
  [(cell, *row) for cell, rows in REFUSED.items() for row in rows],
)
def test_a_wrong_option_is_refused(cell, section, key, value, message):
  refusal = equations.refusal(cell, section, key, value)
  assert f'{section}.{key}={value!r}' in refusal
  assert message in refusal
