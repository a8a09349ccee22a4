"""Copies a run's model with its matrices in 8 bits.

  python -m launch.quantize --workdir=runs/demo --output=runs/demo8

The checkpoint is a quarter as large, and every launcher reads it. With
--activations, matmuls (except the head's) also round their activations and
multiply in 8 bits; without it only the matrices are rounded. See
docs/compression.md.
"""

from absl import flags

from launch import command

PURPOSE = 'Exchange'
WORKDIR, CHECKPOINT = command.define_run()
OUTPUT = flags.DEFINE_string(
  'output', None, 'Work folder to create.', required=True
)
ACTIVATIONS = flags.DEFINE_bool(
  'activations', False, 'Also quantize activations in matmuls.'
)


def main(argv):
  import dataclasses

  import jax

  from rnn_jax.models import int8_weights
  from rnn_jax.runs import bundle as bundle_lib

  del argv
  bundle_lib.check_absent(OUTPUT.value)
  bundle = bundle_lib.read(WORKDIR.value, CHECKPOINT.value)
  packed = jax.jit(int8_weights.pack)(jax.device_put(bundle.params))
  packed = jax.device_get(packed)
  config = bundle.config
  if ACTIVATIONS.value:
    train = dataclasses.replace(config.train, quantized='int8')
    config = dataclasses.replace(config, train=train)
  bundle_lib.write(
    dataclasses.replace(bundle, config=config, params=packed), OUTPUT.value
  )
  before, after = (
    sum(x.nbytes for x in jax.tree.leaves(tree))
    for tree in (bundle.params, packed)
  )
  print(
    f'parameters: {before:,} bytes -> {after:,} bytes, '
    f'{before / after:.2f} times smaller'
  )


if __name__ == '__main__':
  command.run(main)
