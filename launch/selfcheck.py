"""Compares forms of recurrences and of products with float64.

    python -m launch.selfcheck

Compares outputs, final state and every gradient on this machine's device, for
gates of 0, 1 and in between, resets, several shapes and formats: of gated
linear attention, the delta rule and its general form. Then products with packed
matrices, in each of their formats. Prints a table of errors and bounds and
exits with 1 if an error exceeds its bound. One line says which C++ library is
in use, or why it isn't available.
"""

import sys

from absl import flags

from launch import command

PURPOSE = 'Measure'
IMPL = flags.DEFINE_string('impl', '', 'Implementation to check; empty: all.')


def main(argv):
  del argv
  from rnn_jax import selfcheck
  from rnn_jax.system import streams

  streams.stdout_is_the_result()
  sys.exit(0 if selfcheck.run(IMPL.value) else 1)


if __name__ == '__main__':
  command.run(main)
