"""Adds a finished training run to benchmarks/results/runs.jsonl.

python -m benchmarks.record_run --workdir=runs/demo
"""

from absl import flags

from launch import command

WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)
NAME = flags.DEFINE_string('name', '', 'Of the row; empty: the folder.')


def main(argv: list[str]) -> None:
  del argv
  from benchmarks.harness import rows
  from benchmarks.suites import runs
  from rnn_jax.system import files

  row = rows.append('runs', runs.values_of(WORKDIR.value, NAME.value))
  print(files.to_json(row, indent=1))


if __name__ == '__main__':
  command.run(main)
