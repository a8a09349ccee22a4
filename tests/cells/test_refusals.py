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
    ('mesh', 'sequence', 2, "model.cell='lstm' runs a row"),
    ('recurrence', 'impl', 'chunked', 'model.cell='),
  ),
  'gru': (('mesh', 'sequence', 2, "model.cell='gru' runs a row step by step"),),
  'rhn': (('mesh', 'sequence', 2, "model.cell='rhn' runs a row step by step"),),
  'qrnn': (
    ('recurrence', 'impl', 'pallas', "model.cell='qrnn' has ('auto', 'scan'"),
  ),
  'deltanet': (('cell', 'max_beta', 3.0, 'give a number above 0, up to 2'),),
  'gated_deltanet': (
    ('cell', 'value_heads', 6, 'cell.heads=4 must divide it'),
  ),
  'kda': (
    ('mesh', 'sequence', 2, "model.cell='kda' runs a row on one device"),
  ),
  'rwkv7': (
    ('cell', 'value_rank', 3, 'it has no effect without cell.value_r'),
    ('recurrence', 'impl', 'associative', "model.cell='rwkv7' has ('auto'"),
  ),
  'gla': (('recurrence', 'chunk_length', 40, "or use recurrence.impl='scan'"),),
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
    ('mesh', 'tensor', 3, 'the 256 channels of cell.inner_width=256'),
    ('recurrence', 'impl', 'pallas', "has ('auto', 'scan'"),
  ),
  'mlstm': (('mesh', 'sequence', 2, 'on one device'),),
  'rg_lru': (('recurrence', 'impl', 'pallas', "has ('auto', 'scan'"),),
  'latent_attention': (
    ('cell', 'rotary', 1.0, 'give a number above 1, or 0 for no positions'),
    ('cell', 'shared_width', 3, 'rotary positions need an even number'),
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
