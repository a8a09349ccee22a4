"""Runs the fuzzer: a row for each group of attempts, see suite.py.

  python -m tests.faults [--only=REGEX] [--resume]

The flags are those of benchmarks.run.
"""

from absl import flags

from benchmarks import run
from launch import command

flags.set_default(run.SUITE, 'faults')
flags.adopt_module_key_flags(run)

if __name__ == '__main__':
  command.run(run.main)
