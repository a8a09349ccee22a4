"""Adds a finished training run to benchmarks/results/runs.jsonl.

  python -m benchmarks.record_run --workdir=runs/demo

The row holds the run's config, its learning curve, its speed, and the loss of
its best checkpoint on the held-out splits, evaluated now.
"""

import json
import statistics

from absl import flags

from launch import command

WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)


def main(argv):
  del argv
  from benchmarks import rows
  from rnn_jax.training import evaluate
  from rnn_jax.training import metrics
  from rnn_jax.training import workdir as workdir_lib

  measured = metrics.read(WORKDIR.value)
  train = [row for row in measured if row['split'] == 'train']
  curve = [
    (row['step'], round(row['loss'], 4))
    for row in measured
    if row['split'] == 'validation'
  ]
  row = rows.append(
    'runs',
    {
      'config': workdir_lib.load_config(WORKDIR.value),
      'steps': train[-1]['step'],
      'tokens_per_second_median': statistics.median(
        row['tokens_per_second'] for row in train[1:]
      ),
      'padding_efficiency': train[-1]['padding_efficiency'],
      'peak_memory_bytes': train[-1]['peak_memory_bytes'],
      'validation_curve': curve,
      'held_out': evaluate.evaluate_run(WORKDIR.value, ''),
    },
  )
  print(json.dumps(row, indent=1))


if __name__ == '__main__':
  command.run(main)
