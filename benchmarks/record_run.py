"""Adds a finished training run to benchmarks/results/runs.jsonl.

  python -m benchmarks.record_run --workdir=runs/demo

The row holds the run's config, its learning curve, its speed, and the loss of
its best checkpoint on the held-out splits, evaluated now.
"""

import json
import pathlib
import statistics

from absl import flags

from launch import command

WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)


NAME = flags.DEFINE_string('name', '', 'Of the row; empty: the folder.')


def main(argv):
  del argv
  import jax

  from benchmarks import rows
  from rnn_jax import config as config_lib
  from rnn_jax.training import evaluate
  from rnn_jax.training import metrics
  from rnn_jax.training import workdir as workdir_lib

  config = workdir_lib.load_config(WORKDIR.value)
  measured = metrics.read(WORKDIR.value)
  train = [row for row in measured if row['split'] == 'train']
  data = config_lib.parse(config).data
  config['data']['path'] = pathlib.Path(data.path).name  # not where it lay
  run = evaluate.Run.open(WORKDIR.value)
  row = rows.append(
    'runs',
    {
      'name': NAME.value or pathlib.Path(WORKDIR.value).resolve().name,
      'source': data.source,
      'config': config,
      'parameters': sum(x.size for x in jax.tree.leaves(run.params)),
      'steps': train[-1]['step'],
      'tokens': sum(row['tokens'] for row in train),
      'seconds': sum(row['seconds'] for row in train),
      'tokens_per_second_median': statistics.median(
        row['tokens_per_second'] for row in train[1:]
      ),
      'padding_efficiency': train[-1]['padding_efficiency'],
      'peak_memory_bytes': train[-1]['peak_memory_bytes'],
      'validation_curve': [
        (row['step'], round(row['loss'], 4))
        for row in measured
        if row['split'] == 'validation'
      ],
      'held_out': evaluate.evaluate_run(run, ''),
    },
  )
  print(json.dumps(row, indent=1))


if __name__ == '__main__':
  command.run(main)
