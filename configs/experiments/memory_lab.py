"""What saves memory in training a Transformer: single techniques and sums.

  python -m launch.experiments \\
      --grid=configs/experiments/memory_lab.py --workdir=runs/lab \\
      --set=data.path=PATH/corpus.txt

The decoder of configs/memory_lab.py. The baseline is float32 with all attention
scores at once and all activations kept. 'flash' is blocked attention, with
memory linear in the length; as published, it and its windows use bfloat16. With
window w a query sees itself and the w keys before it: in rows of 512 tokens,
window_512 is the whole row.

On a CPU, smaller: add --set=model.width=128 --set=model.layers=4
--set=model.embedding_multiplier=11.3 --set=model.mlp_width=512
--set=cell.head_width=16 --set=data.vocabulary=2000
--set=data.batch_size=8 --set=train.steps=200 --set=evaluate.every=100.

Published, for another size on an RTX 5090 (width 256, 4 layers, length 256,
vocabulary 50,257, batch 128): perplexity 14.96 in float32, 15.04 in bfloat16,
15.05 with flash, 14.95 with a window of 16, 15.05 with checkpoints.
"""

from rnn_jax.experiments import grid

BFLOAT16 = {'train.precision': 'bfloat16'}
FLASH = BFLOAT16 | {'recurrence.impl': 'blocked'}
CHECKPOINTS = {'remat.layers': 1}
EXACT = {'recurrence.impl': 'exact'}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='The memory laboratory',
    config='configs/memory_lab.py',
    variants={
      'baseline': EXACT,
      'bfloat16': EXACT | BFLOAT16,
      'flash': FLASH,
      'window_512': FLASH | {'cell.window': 511},
      'window_256': FLASH | {'cell.window': 256},
      'checkpoints': EXACT | CHECKPOINTS,
      'bfloat16_checkpoints': EXACT | BFLOAT16 | CHECKPOINTS,
      'flash_checkpoints': FLASH | CHECKPOINTS,
    },
    metrics=(('perplexity', 'lower', 'perplexity'),),
    baseline='baseline',
    seeds=(0,),
    commands=('train', 'evaluate', 'profile', 'find_batch_size'),
    memory_gib=4.0,
  )
