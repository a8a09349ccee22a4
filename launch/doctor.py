"""Says what rnn_jax finds on this machine, and what is missing.

    python -m launch.doctor

Versions, devices, the C++ library, compiled programs, disk, the server's port
and the extras, each a line, with what to do where something is missing (-) or
broken (!); and whether a recurrence and a product agree with float64. Put all
of it into a bug report. Exits with 1 if something is broken.
"""

import json
import sys

from absl import flags

from launch import command

PURPOSE = 'Measure'
JSON = flags.DEFINE_bool('json', False, 'Print each line as a JSON object.')


def main(argv):
  del argv
  from rnn_jax import command_line
  from rnn_jax.selfcheck import machine
  from rnn_jax.system import streams

  streams.stdout_is_the_result()
  broken = 0
  for finding in machine.findings():
    broken += finding.status == machine.BROKEN
    text = json.dumps(finding._asdict()) if JSON.value else str(finding)
    print(command_line.as_typed(text), flush=True)
  sys.exit(1 if broken else 0)


if __name__ == '__main__':
  command.run(main)
