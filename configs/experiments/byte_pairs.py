"""The default job in byte pairs: the changes that led to its config.

  python -m launch.experiments --grid=byte_pairs --workdir=runs/byte_pairs

'start' is the model of configs/stdlib_bytes.py, trained by Muon on byte pairs.
SAME_STEPS change one thing each, the last one three, and read as many tokens,
whatever that takes. SAME_TIME have the preset 'coupled', shorter segments, and
as many steps as fit in the time of 'start', about 6 minutes on a core;
'half_the_batch' also has fewer Newton-Schulz steps, which don't depend on the
batch. ONE_CHANGE are changes to the config that came of these, with its 1,600
steps and one rate for all parameters; the best of them, the rate of embeddings,
came into it. AGAIN multiplies in bfloat16 and spends what that saves: the two
layers are those of configs/stdlib_bpe.py. One seed, validation split.
"""

from rnn_jax.experiments import grid


def _steps(count):
  keys = 'train.steps', 'evaluate.every', 'train.checkpoint_every'
  return dict.fromkeys(keys, count)


START = _steps(750) | {
  'data.tokenizer': 'bpe',
  'data.vocabulary': 2048,
  'optimizer.name': 'muon',
  'optimizer.learning_rate': 6e-3,
}
# As many weights as the preset 'improved' has.
COUPLED = {
  'cell.preset': 'coupled',
  'cell.decay': 'key',
  'cell.value_width': 56,
  'cell.gate_bias': 1.0,
  'cell.gate_spread': 1.0,
}
SEGMENTS = {'data.segment_tokens': 2048}
LARGER = {'data.vocabulary': 4096}
SAME_STEPS = {
  'start': {},
  'coupled': COUPLED,
  'coupled-32_keys': COUPLED | {'cell.key_width': 32, 'cell.value_width': 52},
  'vocabulary_1024': {'data.vocabulary': 1024},
  'vocabulary_4096': LARGER,
  'segments_of_2048': SEGMENTS,
  'coupled-vocabulary_4096-segments_of_2048': COUPLED | LARGER | SEGMENTS,
}
NARROW = {  # two thirds of the width
  'model.width': 128,
  'model.mlp_width': 256,
  'cell.value_width': 40,
}
SAME_TIME = {
  'half_the_batch': _steps(1350)
  | {'data.batch_size': 4, 'optimizer.newton_schulz_steps': 3},
  'narrow': NARROW | _steps(1400),
  'narrow-vocabulary_4096': NARROW | LARGER | _steps(1080),
  'narrow-rate_.012': NARROW
  | {'optimizer.learning_rate': 1.2e-2}
  | _steps(1400),
  'narrow-segments_of_512': NARROW
  | {'data.segment_tokens': 512}
  | _steps(1400),
  'narrow-segments_of_256': NARROW
  | {'data.segment_tokens': 256}
  | _steps(1400),
  'narrow-segments_of_512-16_rows_of_128': NARROW
  | {'data.segment_tokens': 512, 'data.batch_size': 16, 'data.length': 128}
  | _steps(1400),
  'narrower': _steps(2000)
  | {
    'model.width': 96,
    'model.mlp_width': 192,
    'cell.value_width': 32,
  },
}
LITTLE_DECAY = {
  'optimizer.weight_decay': 0.01,
  'optimizer.newton_schulz_format': 'float32',
}
STDLIB_BPE = LITTLE_DECAY | {  # before its last changes
  'config': 'configs/stdlib_bpe.py',
  'model.layers': 3,
  'model.unroll': 3,
  'train.precision': 'float32',
  'train.steps': 1600,
  'train.checkpoint_every': 400,
  'evaluate.every': 400,
  'optimizer.multipliers': (),
  'optimizer.preconditioning': 'frobenius',
  'optimizer.newton_schulz_steps': 5,
  'schedule.name': 'cosine',
  'schedule.final_learning_rate': 1e-4,
}
ONE_CHANGE = {
  'config': {},
  'config-b1_.95_nesterov': {
    'optimizer.b1': 0.95,
    'optimizer.nesterov': True,
  },
  **{
    f'config-embedding_{times}': {
      'optimizer.multipliers': (('embedding/.*', float(times)),)
    }
    for times in (3, 10, 30, 100)
  },
  'config-head_3': {'optimizer.multipliers': (('head/.*', 3.0),)},
  'config-head_third': {'optimizer.multipliers': (('head/.*', 0.3),)},
  'config-tied': {'model.tied': True},
  'config-linear_to_0': {
    'schedule.name': 'linear',
    'schedule.final_learning_rate': 0.0,
  },
  'config-2_layers': {'model.layers': 2, 'model.unroll': 2},
  'config-4_layers': {'model.layers': 4, 'model.unroll': 4},
  'config-half_mlp': {'model.mlp_width': 128, 'cell.value_width': 72},
  'config-half_the_batch': {'data.batch_size': 4, 'train.steps': 2700},
  'config-rate_.004': {'optimizer.learning_rate': 4e-3},
  'config-rate_.009': {'optimizer.learning_rate': 9e-3},
  'config-small_embedding': {'model.embedding_scale': 0.3},
  'config-small_branches': {'model.branch_scale': 0.3},
}

AGAIN = {  # of three layers in bfloat16, in the time of the config before it
  name: _steps(steps)
  | LITTLE_DECAY
  | {'config': 'configs/stdlib_bpe.py', 'model.layers': 3, 'model.unroll': 3}
  | own
  for name, steps, own in (
    ('bfloat16', 2240, {}),
    ('bfloat16-vocabulary_4096', 1840, LARGER),
    ('bfloat16-4_layers', 1760, {'model.layers': 4, 'model.unroll': 4}),
    ('bfloat16-2_layers', 3000, {'model.layers': 2, 'model.unroll': 2}),
    (
      'bfloat16-two_groups',
      1680,
      {'cell.groups': 2, 'model.mlp_width': 128, 'cell.value_width': 70},
    ),
  )
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library in byte pairs: the way to the config",
    config='configs/stdlib_bytes.py',
    variants={
      **{name: START | own for name, own in SAME_STEPS.items()},
      **{
        name: START | COUPLED | SEGMENTS | own
        for name, own in SAME_TIME.items()
      },
      **{name: STDLIB_BPE | own for name, own in ONE_CHANGE.items()},
      **AGAIN,
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    baseline='start',
    seeds=(0,),
  )
