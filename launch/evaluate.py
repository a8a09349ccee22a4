"""Evaluates a run's checkpoint on a held-out split.

    python -m launch.evaluate --workdir=runs/demo --split=test
    python -m launch.evaluate --workdir=runs/demo --input=new.jsonl

Prints the loss and the task's scores. Language models: perplexity and, with a
lossless tokenizer, bits per byte next to gzip and xz. Classifiers: accuracy and
macro-F1. Dialogue: BLEU, ROUGE, distinct n-grams and, with a model on disk,
BERTScore. Writes every prediction, the scores with their confidence intervals,
and plots to WORKDIR/evaluation/SPLIT/. --json prints the scores as one JSON
object.

--calibrate fits a temperature on the validation split, or on the rows of
--input, so that a classifier's probabilities agree with how often it is right.
WORKDIR/calibration.json keeps it, and predictions use it from then on.

--input evaluates on a file of your own, as a split of its own: rows with a text
and a class (.jsonl, .csv, .tsv, .parquet), text, dialogues, images by class, or
prepared:NAME. The run's data needn't exist, and the folder has the file's name.
"""

from absl import flags

from launch import command
from launch import hosts

PURPOSE = 'Measure'
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
SPLIT = flags.DEFINE_string(
  'split',
  '',
  "'train', 'validation' or 'test'; empty: test, if the run has one.",
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint', 'best', "'best', 'latest' or a step number."
)
INPUT = flags.DEFINE_string(
  'input',
  '',
  "A file to evaluate on, or 'prepared:NAME'; empty: a split of the run.",
)
DELIMITER = flags.DEFINE_string(
  'delimiter',
  '',
  "Between the values of a CSV --input, as ';' or 'tab'; empty: by its header.",
)
MISSING_LABELS = flags.DEFINE_enum(
  'missing_labels',
  '',
  ['', 'error', 'skip'],
  "Rows of --input without a class; empty: the run's data.missing_labels.",
)
LIMIT = flags.DEFINE_integer(
  'limit', 0, 'Write predictions for the first N documents only; 0: all.'
)
BERTSCORE = flags.DEFINE_string(
  'bertscore',
  '',
  'Dialogue: folder of a model for BERTScore, or its name in the local cache; '
  'nothing is downloaded; empty: no BERTScore.',
)
CALIBRATE = flags.DEFINE_bool(
  'calibrate',
  False,
  "Fit a temperature for a classifier's probabilities on the validation split, "
  'and keep it in the run.',
)
ACCEPT_NEW_DATA = flags.DEFINE_bool(
  'accept_new_data',
  False,
  'Evaluate on other documents than the run began with.',
)
VERIFY = flags.DEFINE_bool(
  'verify', False, 'Check all token files of the data (data.cache) first.'
)
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object.')


def main(argv):
  from rnn_jax import errors
  from rnn_jax import files
  from rnn_jax import streams
  from rnn_jax.data import held_out
  from rnn_jax.evaluation import run as run_lib
  from rnn_jax.parallel import hosts as hosts_lib
  from rnn_jax.runs import progress
  from rnn_jax.runs.checkpoints import checkpoint
  from rnn_jax.training import evaluate

  del argv
  if not WORKDIR.value:
    raise errors.InputError("--workdir is missing: name a run's folder")
  if LIMIT.value < 0:
    raise errors.InputError(f'--limit={LIMIT.value}: give 0 or more')
  if INPUT.value and ACCEPT_NEW_DATA.value:
    raise errors.InputError(
      '--accept_new_data=True: --input is new data: leave it out'
    )
  if JSON.value:
    streams.stdout_is_the_result()
  if INPUT.value and VERIFY.value:
    raise errors.InputError(
      '--verify=True: --input has no token files: leave it out'
    )
  options = held_out.Options(DELIMITER.value, MISSING_LABELS.value)
  if options != held_out.BY_CONFIG and not INPUT.value:
    raise errors.InputError(
      '--delimiter and --missing_labels are of --input: leave them out'
    )
  evaluate.check_split(SPLIT.value)
  which = checkpoint.parse_which(CHECKPOINT.value)
  if CALIBRATE.value:
    _check_calibrates()
  with hosts.joined(stops_together=False):
    split = SPLIT.value
    if INPUT.value:
      run, split = evaluate.Run.open_on(
        WORKDIR.value, INPUT.value, split, which, options
      )
    else:
      run = evaluate.Run.open(
        WORKDIR.value, which, ACCEPT_NEW_DATA.value, verify=VERIFY.value
      )
    if CALIBRATE.value:
      row = _calibrate(run, split)
    else:
      row = run_lib.evaluate_run(
        run, WORKDIR.value, split, LIMIT.value, BERTSCORE.value
      )
    if not hosts_lib.is_first():
      return
  if JSON.value:
    print(files.to_json(row))
    return
  if CALIBRATE.value:
    print(_table(row))
    return
  print(progress.evaluation_table(row))
  if scores := run_lib.table(row):
    print(scores)


def _check_calibrates():
  """Refuses what --calibrate can't do, and flags without an effect."""
  from rnn_jax import config as config_lib
  from rnn_jax import errors
  from rnn_jax.evaluation import calibration
  from rnn_jax.runs import workdir as workdir_lib

  for flag in (LIMIT, BERTSCORE):
    if flag.present:
      errors.refuse(
        f'--{flag.name}',
        flag.value,
        'it has no effect with --calibrate: leave it out',
      )
  config = config_lib.parse(workdir_lib.load_config(WORKDIR.value))
  calibration.check(config.task, SPLIT.value, INPUT.value)


def _calibrate(run, split):
  from rnn_jax.evaluation import calibration

  return calibration.calibrate_run(run, WORKDIR.value, split or 'validation')


def _table(row):
  from rnn_jax.evaluation import calibration

  return calibration.table(row)


if __name__ == '__main__':
  command.run(main)
