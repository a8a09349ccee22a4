"""Packs a run's weights in fewer bits, as they are used.

  python -m launch.quantize --workdir=runs/demo --format=int4
  python -m launch.generate --workdir=runs/demo --weights=int4

The file, runs/demo/weights/int4.safetensors, belongs to one checkpoint: what
asks for its format then maps it, in place of reading and packing the
checkpoint. With --output the file is in a new work folder, without a
checkpoint, which every launcher reads. --activations, with int8, makes matmuls
(except the head's) of that folder round their activations as well, and multiply
in 8 bits. See docs/compression.md.
"""

from absl import flags

from launch import command

PURPOSE = 'Exchange'
WORKDIR, CHECKPOINT = command.define_run()
FORMAT = flags.DEFINE_enum(
  'format',
  'int8',
  ['float32', 'bfloat16', 'int8', 'int8_blocks', 'int4'],
  'Format of the matrices.',
)
OUTPUT = flags.DEFINE_string(
  'output', None, "Work folder to create. Default: the file is in the run's."
)
ACTIVATIONS = flags.DEFINE_bool(
  'activations', False, 'Also quantize activations in matmuls.'
)


def main(argv):
  import dataclasses

  import jax

  from rnn_jax import errors
  from rnn_jax.models import packed_weights
  from rnn_jax.runs import bundle as bundle_lib

  del argv
  if ACTIVATIONS.value and (OUTPUT.value is None or FORMAT.value != 'int8'):
    raise errors.InputError(
      'activations=True: it is a key of the config of a new folder: give '
      '--output, and --format=int8'
    )
  if OUTPUT.value is not None:
    bundle_lib.check_absent(OUTPUT.value)
  bundle = bundle_lib.read(WORKDIR.value, CHECKPOINT.value)
  params = jax.device_put(bundle.params)
  packed = jax.device_get(packed_weights.panels(params, FORMAT.value))
  before, after = (
    sum(x.nbytes for x in jax.tree.leaves(tree))
    for tree in (bundle.params, packed)
  )
  config = bundle.config
  if ACTIVATIONS.value:
    train = dataclasses.replace(config.train, quantized='int8')
    config = dataclasses.replace(config, train=train)
  bundle = dataclasses.replace(bundle, config=config, params=packed)
  if OUTPUT.value is None:
    path = bundle_lib.write_packed(bundle, WORKDIR.value, FORMAT.value)
  else:
    bundle_lib.write(bundle, OUTPUT.value, FORMAT.value)
    path = OUTPUT.value
  print(
    f'parameters: {before:,} bytes -> {after:,} bytes, '
    f'{before / after:.2f} times smaller, in {path}'
  )


if __name__ == '__main__':
  command.run(main)
