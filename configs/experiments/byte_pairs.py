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
HALF = {
  'train.steps': 750,
  'evaluate.every': 750,
  'train.checkpoint_every': 750,
}
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
THEN = {
  'vocabulary_8192': {'data.vocabulary': 8192},
  'tied': {'model.tied': True},
  'segments_of_512': {'data.segment_tokens': 512},
  'rate_.003': {'optimizer.learning_rate': 3e-3},
  'rate_.012': {'optimizer.learning_rate': 1.2e-2},
  'nesterov': {'optimizer.nesterov': True},
  '3_newton_schulz_steps': {'optimizer.newton_schulz_steps': 3},
  'b1_.95': {'optimizer.b1': 0.95},
  'decay_.1': {'optimizer.weight_decay': 0.1},
  'final_rate_0': {'schedule.final_learning_rate': 0.0},
  'half_the_batch': {
    'data.batch_size': 4,
    'train.steps': 1500,
    'evaluate.every': 1500,
    'train.checkpoint_every': 1500,
  },
  'length_128': {'data.batch_size': 16, 'data.length': 128},
  '2_layers_of_256': {
    'model.layers': 2,
    'model.unroll': 2,
    'model.width': 256,
    'model.mlp_width': 512,
    'cell.value_width': 64,
  },
  'mlp_of_768': {'model.mlp_width': 768},
  'gates_1_to_5': {'cell.gate_bias': 3.0, 'cell.gate_spread': 2.0},
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library in byte pairs, one change at a time",
    config='configs/stdlib_bpe.py',
    variants={
      **{name: HALF | own for name, own in FIRST.items()},
      'all_three': HALF | ALL,
      **{f'all_three-{x}': HALF | ALL | own for x, own in THEN.items()},
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    baseline='as_it_is',
    seeds=(0,),
  )
