"""The command `rnn-jax`, as `python -m rnn_jax`."""

import sys

from rnn_jax import command_line

if __name__ == '__main__':
  sys.exit(command_line.main())
