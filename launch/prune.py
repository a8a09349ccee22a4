"""Copies a run's model with its smallest weights set to 0.

  python -m launch.prune --workdir=runs/demo --sparsity=0.5 --output=runs/half

Every launcher reads the new work folder. To continue training with the zeros
kept, give launch.train that folder and a config with a `pruning` section; the
same section prunes gradually during training. See docs/compression.md.
"""

from absl import flags

from launch import command

PURPOSE = 'Exchange'
WORKDIR, CHECKPOINT = command.define_run()
OUTPUT = flags.DEFINE_string(
  'output', None, 'Work folder to create.', required=True
)
SPARSITY = flags.DEFINE_float(
  'sparsity', None, 'Fraction of zeros, in (0, 1).', required=True
)
SCOPE = flags.DEFINE_string(
  'scope',
  'layer',
  "'layer': of each matrix; 'global': of all matrices together.",
)


def main(argv):
  import dataclasses
  import functools

  import jax
  import numpy as np

  from rnn_jax import errors
  from rnn_jax.config import compression as config_compression
  from rnn_jax.runs import bundle as bundle_lib
  from rnn_jax.training import pruning

  del argv
  if not 0 < SPARSITY.value < 1:
    raise errors.InputError(
      f'--sparsity={SPARSITY.value}: give a fraction in (0, 1)'
    )
  if SCOPE.value not in config_compression.SCOPES:
    raise errors.InputError(
      f'--scope={SCOPE.value!r}: choose one of {config_compression.SCOPES}'
    )
  bundle_lib.check_absent(OUTPUT.value)
  bundle = bundle_lib.read(WORKDIR.value, CHECKPOINT.value)
  prune = jax.jit(functools.partial(pruning.prune, scope=SCOPE.value))
  inputs = jax.device_put((bundle.params, np.float32(SPARSITY.value)))
  params = jax.device_get(prune(*inputs))
  bundle_lib.write(dataclasses.replace(bundle, params=params), OUTPUT.value)
  print(f'zeros in matrices: {pruning.sparsity(params):.1%}')


if __name__ == '__main__':
  command.run(main)
