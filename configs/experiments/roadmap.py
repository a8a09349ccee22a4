"""A Transformer's training: one technique at a time, then combined.

  python -m launch.experiments \\
      --grid=configs/experiments/roadmap.py --workdir=runs/roadmap \\
      --set=data.path=PATH/input.txt

The small size of configs/chatgot.py. The baseline is float32, exact attention,
plain AdamW, all activations kept and XLA's default options. Each variant
changes one thing; 'precision_accumulation_compiler' and
'flash_checkpoints_8bit' are the two combinations of the roadmap, 'all' is both.

Some techniques need no variant: memory settings and CPU affinity are flags of
every launcher (--memory_fraction, --cpus), and XLA does kernel fusion and
kernel graphs itself. Parallelism over devices is in docs/scaling.md.

On a CPU, smaller: add --set=model.width=128 --set=cell.head_width=32
--set=model.mlp_width=512 --set=train.steps=200 --set=evaluate.every=100.
"""

from rnn_jax.experiments import grid

EXACT = {'recurrence.impl': 'exact'}
FLASH = {'recurrence.impl': 'blocked'}
FLOAT16 = {'train.precision': 'float16'}
ACCUMULATION = {'train.accumulate': 4}
CHECKPOINTS = {'remat.layers': 1}
EIGHT_BIT = {'optimizer.moments': 'int8'}
COMPILER = {'train.compiler': 'fast_math'}  # on a GPU: 'latency_hiding'


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='The roadmap, technique by technique',
    config='configs/chatgot.py',
    variants={
      'baseline': EXACT,
      'float16': EXACT | FLOAT16,
      'bfloat16': EXACT | {'train.precision': 'bfloat16'},
      'checkpoints': EXACT | CHECKPOINTS,
      'checkpoints_matmuls_kept': EXACT
      | CHECKPOINTS
      | {'remat.keep': ('matmuls',)},
      'checkpoints_offloaded': EXACT
      | CHECKPOINTS
      | {
        'remat.keep': ('hidden', 'recurrence'),
        'remat.offload': True,
      },
      'accumulation': EXACT | ACCUMULATION,
      'compiler': EXACT | COMPILER,
      'flash': FLASH,
      'window_64': FLASH | {'cell.window': 64},
      'top_k_32': EXACT | {'cell.top_k': 32},
      '8bit': EXACT | EIGHT_BIT,
      'bfloat16_moments': EXACT | {'optimizer.moments': 'bfloat16'},
      # Its learning rate is relative to the size of each parameter.
      'adafactor': EXACT
      | {'optimizer.name': 'adafactor', 'optimizer.learning_rate': 1e-2},
      'optimizer_offloaded': EXACT | {'optimizer.offload': True},
      'swiglu': EXACT | {'model.mlp': 'swiglu'},
      'geglu': EXACT | {'model.mlp': 'geglu'},
      'plateau': EXACT | {'schedule.name': 'plateau', 'schedule.patience': 1},
      'int8_forward': EXACT | {'train.quantized': 'int8'},
      'precision_accumulation_compiler': (
        EXACT | FLOAT16 | ACCUMULATION | COMPILER
      ),
      'flash_checkpoints_8bit': FLASH | CHECKPOINTS | EIGHT_BIT,
      'all': (
        FLASH | FLOAT16 | ACCUMULATION | COMPILER | CHECKPOINTS | EIGHT_BIT
      ),
    },
    metrics=(('perplexity', 'lower', 'perplexity'),),
    baseline='baseline',
    seeds=(0,),
    commands=('train', 'evaluate', 'profile', 'find_batch_size'),
    memory_gib=4.0,
  )
