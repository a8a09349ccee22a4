"""Cells at the width at which a model has as many weights as SimpleRNN's.

Within 3 %, without the vocabulary's. TEXT is configs/tiny_shakespeare.py at
three layers of width 256, SMALL the two layers of width 64 of configs/recall.py
and configs/long_range.py, MQAR those of width 128 of
configs/long_range.py:mqar.
"""

TEXT, SMALL, MQAR = range(3)
REFERENCE = 'simple_rnn'
WIDTHS = {  # a cell's option, and its value in TEXT, SMALL and MQAR
  'lstm': ('state_width', 129, 49, 73),
  'gru': ('state_width', 155, 58, 88),
  'min_lstm': ('state_width', 155, 58, 88),
  'rhn': ('state_width', 142, 51, 79),
  'qrnn': ('state_width', 129, 56, 76),
  'attention': ('head_width', 56, 24, 34),
  'latent_attention': ('kv_rank', 284, 12, 68),
  'retnet': ('value_width', 64, 22, 104),
  'gla': ('value_width', 59, 16, 94),
  'hgrn2': ('value_width', 97, 34, 157),
  'mamba2': ('value_width', 72, 29, 100),
  'mamba': ('inner_width', 271, 100, 151),
  'mlstm': ('value_width', 64, 22, 104),
  'rg_lru': ('head_width', 64, 25, 37),
  'deltanet': ('value_width', 96, 31, 151),
  'gated_deltanet': ('value_width', 64, 21, 101),
  'kda': ('value_width', 77, 12, 120),
  'rwkv7': ('value_width', 69, 4, 106),
}
CELLS = (REFERENCE, *WIDTHS)
# Cells that only state_tracking.py has.
WIDTHS |= {
  'deltaproduct': ('value_width', 58, 15, 62),
  'gated_deltaproduct': ('value_width', 43, 11, 46),
  'mamba3': ('value_width', 71, 29, 93),
}


def of(cell: str, model: int) -> dict[str, int]:
  """Returns the override that gives a cell its width in TEXT, SMALL or MQAR."""
  if cell == REFERENCE:
    return {}
  option, *widths = WIDTHS[cell]
  return {f'cell.{option}': widths[model]}
