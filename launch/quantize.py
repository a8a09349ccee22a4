"""Makes a work folder whose checkpoint holds a run's matrices in 8 bits.

  python -m launch.quantize --workdir=runs/demo --output=runs/demo8

It is a quarter as large, and launch.generate, launch.evaluate and launch.export
read it as any other. With --activations matmuls multiply in 8 bits as well,
those of the activations rounded as they come (but for the head's); without it
the matrices alone are rounded. See docs/compression.md.
"""

from absl import flags

from launch import command

WORKDIR = flags.DEFINE_string('workdir', None, 'The run.', required=True)
OUTPUT = flags.DEFINE_string(
  'output', None, 'The work folder to make.', required=True
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint', 'best', "'best', 'latest' or a step."
)
ACTIVATIONS = flags.DEFINE_bool(
  'activations', False, 'Round the factors of matmuls as well.'
)


def main(argv):
  import dataclasses

  import jax

  from rnn_jax.training import bundle as bundle_lib
  from rnn_jax.training import quantized

  del argv
  bundle_lib.check_absent(OUTPUT.value)
  bundle = bundle_lib.read(WORKDIR.value, CHECKPOINT.value)
  packed = jax.jit(quantized.pack)(jax.device_put(bundle.params))
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
