"""The default job in byte pairs, one change at a time.

  python -m launch.experiments --grid=byte_pairs --workdir=runs/byte_pairs

Half of its 1,500 steps, one seed: as much text for each, with as many weights
where a change isn't about them. FIRST are changes of configs/stdlib_bpe.py as
it was, THEN those of the best three of them together. A run takes 6 to 8
minutes on a core.
"""

from rnn_jax.experiments import grid

# As many weights as the cell of configs/stdlib_bpe.py has.
COUPLED = {
  'cell.preset': 'coupled',
  'cell.decay': 'key',
  'cell.groups': 1,
  'cell.value_width': 56,
  'cell.gate_bias': 1.0,
  'cell.gate_spread': 1.0,
}
SEGMENTS = {'data.segment_tokens': 2048}
LARGER = {'data.vocabulary': 4096}
ALL = COUPLED | SEGMENTS | LARGER


def _steps(count):
  keys = 'train.steps', 'evaluate.every', 'train.checkpoint_every'
  return dict.fromkeys(keys, count)


HALF = _steps(750)
FIRST = {
  'as_it_is': {},
  'coupled': COUPLED,
  'coupled-32_keys': COUPLED | {'cell.key_width': 32, 'cell.value_width': 52},
  'vocabulary_1024': {'data.vocabulary': 1024},
  'vocabulary_4096': LARGER,
  'tied': {'model.tied': True},
  'small_embedding': {'model.embedding_scale': 0.3},
  'segments_of_2048': SEGMENTS,
}
NARROW = {  # two thirds of the width
  'model.width': 128,
  'model.mlp_width': 256,
  'cell.value_width': 40,
}
FEWER = {'data.batch_size': 4}
CHEAPER = {'optimizer.newton_schulz_steps': 3}
SAME_TIME = {
  'coupled-segments': {},
  'narrow': NARROW | _steps(1400),
  'half_the_batch': FEWER | CHEAPER | _steps(1350),
  'narrow-larger_vocabulary': NARROW | LARGER | _steps(1080),
  'narrow-rate_.012': NARROW
  | {'optimizer.learning_rate': 1.2e-2}
  | _steps(1400),
  'narrow-3_newton_schulz_steps': NARROW | CHEAPER | _steps(1450),
  'narrow-segments_of_512': NARROW
  | {'data.segment_tokens': 512}
  | _steps(1400),
  'narrower': {
    'model.width': 96,
    'model.mlp_width': 192,
    'cell.value_width': 32,
    **_steps(2000),
  },
  '2_layers': {'model.layers': 2, 'model.unroll': 2} | _steps(1050),
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library in byte pairs, one change at a time",
    config='configs/stdlib_bpe.py',
    variants={
      **{name: HALF | own for name, own in FIRST.items()},
      'all_three': HALF | ALL,
      **{
        name: HALF | COUPLED | SEGMENTS | own for name, own in SAME_TIME.items()
      },
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    baseline='as_it_is',
    seeds=(0,),
  )
