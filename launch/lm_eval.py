"""Evaluates a run on tasks of the package lm-eval.

    python -m launch.lm_eval --workdir=runs/demo --tasks=lambada_openai
    python -m launch.lm_eval --workdir=runs/demo --tasks=mine --include_path=.

Prints each score with its standard error, and writes
WORKDIR/evaluation/lm_eval/results.json; with --samples also each document, with
what was asked and answered. `lm-eval ls tasks` lists the tasks. The data of a
task are downloaded, if they aren't here.
"""

from absl import flags

from launch import command

PURPOSE = 'Measure'
WORKDIR, CHECKPOINT = command.define_run()
TASKS = flags.DEFINE_list('tasks', [], 'Names or patterns of tasks.')
INCLUDE_PATH = flags.DEFINE_string(
  'include_path',
  '',
  'Folder of YAML files with tasks of yours, which may run code of theirs.',
)
SHOTS = flags.DEFINE_integer(
  'shots', None, 'Examples before each question. Default: as the task says.'
)
LIMIT = flags.DEFINE_integer('limit', 0, 'Documents of each task; 0: all.')
BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', 8, 'Requests that are read together.'
)
WEIGHTS = flags.DEFINE_string(
  'weights', 'float32', 'Format of the weights in memory, as of serve.'
)
SEED = flags.DEFINE_integer('seed', 0, 'Of tasks that sample.')
SAMPLES = flags.DEFINE_bool(
  'samples', False, 'Write samples_TASK.jsonl with every document.'
)
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object.')


def main(argv):
  from rnn_jax import errors
  from rnn_jax.inference import model as model_lib
  from rnn_jax.runs.checkpoints import checkpoint
  from rnn_jax.system import files
  from rnn_jax.system import streams

  del argv
  try:
    from rnn_jax.evaluation import lm_eval
    from rnn_jax.evaluation import lm_eval_results
  except ImportError as error:
    raise errors.InputError(
      f'launch.lm_eval: the package lm-eval is missing or unfit ({error}): pip '
      "install 'rnn_jax[lm-eval]'"
    ) from error
  if JSON.value:
    streams.stdout_is_the_result()
  options = lm_eval.Options(
    tuple(TASKS.value), INCLUDE_PATH.value, SHOTS.value, LIMIT.value
  )
  which = checkpoint.parse_which(CHECKPOINT.value)
  run = model_lib.load(WORKDIR.value, which, WEIGHTS.value)
  model = lm_eval.Model(run, BATCH_SIZE.value, SEED.value)
  results = lm_eval.evaluate(model, options)
  kept = lm_eval_results.write(results, WORKDIR.value, SAMPLES.value)
  print(files.to_json(kept) if JSON.value else lm_eval_results.table(results))


if __name__ == '__main__':
  command.run(main)
