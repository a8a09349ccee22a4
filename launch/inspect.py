"""Inspects a trained model on a few batches.

    python -m launch.inspect --workdir=runs/demo

Reports gradients, updates and weights layer by layer, gate activations, state
half-lives, dead hidden units, and how far back a gradient reaches. Writes
tables to WORKDIR/inspection/inspection.md and .json with plots next to them,
and scalars and histograms to WORKDIR/tensorboard. --json prints the report as
one JSON object. docs/inspection.md says how to read it.
"""

from absl import flags

from launch import command

PURPOSE = 'Measure'
WORKDIR, CHECKPOINT = command.define_run()
SPLIT = flags.DEFINE_string(
  'split', 'validation', "'train', 'validation' or 'test'."
)
BATCHES = flags.DEFINE_integer('batches', 4, 'Number of batches to read.')
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object.')


def main(argv):
  from rnn_jax import errors
  from rnn_jax.inspection import report
  from rnn_jax.inspection import run as run_lib
  from rnn_jax.runs.checkpoints import checkpoint
  from rnn_jax.system import files
  from rnn_jax.system import streams
  from rnn_jax.training import evaluate

  del argv
  if BATCHES.value < 1:
    raise errors.InputError(f'--batches={BATCHES.value}: give 1 or more')
  if JSON.value:
    streams.stdout_is_the_result()
  split = evaluate.check_split(SPLIT.value) or 'validation'
  which = checkpoint.parse_which(CHECKPOINT.value)
  run = run_lib.Run.open(WORKDIR.value, which)
  result = run_lib.inspect(run, WORKDIR.value, split, BATCHES.value)
  if JSON.value:
    print(files.to_json(report.values(result)))
  else:
    print(report.markdown(result), end='')


if __name__ == '__main__':
  command.run(main)
