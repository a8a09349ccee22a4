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
WORKDIR, CHECKPOINT = command.define_run()
SPLIT = flags.DEFINE_string(
  'split',
  '',
  "'train', 'validation' or 'test'; empty: test, if the run has one.",
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
  from rnn_jax.parallel import hosts as hosts_lib
  from rnn_jax.runs.checkpoints import checkpoint
  from rnn_jax.system import files
  from rnn_jax.system import streams
  from rnn_jax.training import evaluate

  del argv
  _check_flags()
  if JSON.value:
    streams.stdout_is_the_result()
  evaluate.check_split(SPLIT.value)
  which = checkpoint.parse_which(CHECKPOINT.value)
  if CALIBRATE.value:
    _check_calibrates()
  with hosts.joined(stops_together=False):
    split = SPLIT.value
    if INPUT.value:
      run, split = evaluate.Run.open_on(
        WORKDIR.value, INPUT.value, split, which, _options()
      )
    else:
      run = evaluate.Run.open(
        WORKDIR.value, which, ACCEPT_NEW_DATA.value, verify=VERIFY.value
      )
    act = _calibrated if CALIBRATE.value else _scored
    row, text = act(run, split)
    if not hosts_lib.is_first():
      return
  print(files.to_json(row) if JSON.value else text)


def _check_flags():
  """Refuses flags without an effect."""
  from rnn_jax import errors
  from rnn_jax.data import held_out

  if LIMIT.value < 0:
    raise errors.InputError(f'--limit={LIMIT.value}: give 0 or more')
  if INPUT.value and ACCEPT_NEW_DATA.value:
    raise errors.InputError(
      '--accept_new_data=True: --input is new data: leave it out'
    )
  if INPUT.value and VERIFY.value:
    raise errors.InputError(
      '--verify=True: --input has no token files: leave it out'
    )
  if _options() != held_out.BY_CONFIG and not INPUT.value:
    raise errors.InputError(
      '--delimiter and --missing_labels are of --input: leave them out'
    )
  for flag in (LIMIT, BERTSCORE):
    if CALIBRATE.value and flag.present:
      errors.refuse(
        f'--{flag.name}',
        flag.value,
        'it has no effect with --calibrate: leave it out',
      )


def _options():
  """Returns how --input is read."""
  from rnn_jax.data import held_out

  return held_out.Options(DELIMITER.value, MISSING_LABELS.value)


def _check_calibrates():
  """Refuses a run, or a split, that can't be calibrated."""
  from rnn_jax import config as config_lib
  from rnn_jax.evaluation import calibration
  from rnn_jax.runs import workdir as workdir_lib

  config = config_lib.parse(workdir_lib.load_config(WORKDIR.value))
  calibration.check(config.task, SPLIT.value, INPUT.value)


def _scored(run, split):
  """Returns (the scores, their table); of the first process all of them."""
  from rnn_jax.evaluation import run as run_lib
  from rnn_jax.runs import progress

  row = run_lib.evaluate_run(
    run, WORKDIR.value, split, LIMIT.value, BERTSCORE.value
  )
  tables = progress.evaluation_table(row), run_lib.table(row)
  return row, '\n'.join(filter(None, tables))


def _calibrated(run, split):
  """Returns (the calibration, its table); ({}, '') but of the first process."""
  from rnn_jax.evaluation import calibration

  row = calibration.calibrate_run(run, WORKDIR.value, split or 'validation')
  return row, calibration.table(row) if row else ''


if __name__ == '__main__':
  command.run(main)
