"""Writes raw files as a TFDS dataset, without TensorFlow.

    python -m launch.prepare --name=reviews --input=reviews.csv \\
        --splits=85,10,5 --data_dir=data

writes data/reviews/1.0.0, which any `tfds.builder_from_directory` reads. Inputs
are JSONL, CSV or TSV, text, Parquet, the original rt-polarity and DailyDialog
files, CIFAR-10's tarball, and images by class in a folder or zip. Name each
input's split, --input=train=a.jsonl --input=test=b.jsonl, or give a folder of
files whose names start with it; otherwise --splits divides the examples.
--input=- reads standard input, in the format that --format names. A second call
with the same inputs does nothing. The last line is a command that trains on the
dataset. --runner spreads the work over machines by Apache Beam, with the same
result:

    python -m launch.prepare --runner=FlinkRunner \\
        --runner_options='--flink_master=localhost:8081' --name=reviews ...
"""

import contextlib
import functools

from absl import flags

from launch import command

PURPOSE = 'Data'
NAME = flags.DEFINE_string('name', None, 'Name of the dataset.', required=True)
DATA_DIR = flags.DEFINE_string('data_dir', 'data', 'Folder of datasets.')
INPUT = flags.DEFINE_multi_string(
  'input',
  [],
  '[train=|validation=|test=]file, glob or folder; -: standard input',
)
FORMAT = flags.DEFINE_string(
  'format', '', "Format of all inputs; empty: inferred from each file's name."
)
SPLITS = flags.DEFINE_string(
  'splits', '', 'Percentages of train, validation and test, e.g. 85,10,5.'
)
SEED = flags.DEFINE_integer(
  'seed', 0, 'Seed of the assignment by --splits.', lower_bound=0
)
LABEL = flags.DEFINE_string(
  'label', None, "Column of classes. Default: 'label', if present; '': none."
)
CLASSES = flags.DEFINE_list('classes', [], 'Names of the classes, in order.')
DOCUMENT = flags.DEFINE_enum(
  'document',
  'line',
  ['line', 'file'],
  'Unit that makes one example of a text file.',
)
ENCODING = flags.DEFINE_string('encoding', 'utf-8', 'Encoding of text files.')
SKIP_EMPTY = flags.DEFINE_bool(
  'skip_empty', False, 'Skip examples with an empty text, turn or list.'
)
TEXT = flags.DEFINE_string(
  'text',
  '',
  "Column that must not be empty. Default: 'text', if present; else every "
  "column of texts that isn't empty everywhere.",
)
MISSING_LABELS = flags.DEFINE_enum(
  'missing_labels',
  'error',
  ['error', 'skip'],
  'What to do about examples without a class.',
)
DELIMITER = flags.DEFINE_string(
  'delimiter',
  '',
  "Between the values of CSV, as ';' or 'tab'; empty: by the header.",
)
DUPLICATES = flags.DEFINE_enum(
  'duplicates',
  'report',
  ['report', 'refuse'],
  'What to do about examples that occur in two splits.',
)
RUNNER = flags.DEFINE_string(
  'runner',
  'single_process',
  "Runner of Apache Beam (extra 'beam'), e.g. DirectRunner or FlinkRunner.",
)
RUNNER_OPTIONS = flags.DEFINE_string(
  'runner_options', '', "The runner's own flags, separated by spaces."
)


def main(argv):
  from rnn_jax import command_line
  from rnn_jax.data.preparation import prepare
  from rnn_jax.data.preparation import requests
  from rnn_jax.data.preparation import training
  from rnn_jax.system import standard_input

  del argv
  with (
    contextlib.ExitStack() as stack,
    standard_input.as_files(INPUT.value) as inputs,
  ):
    request = _request(inputs)
    progress = functools.partial(_progress, stack)
    record, written = prepare.prepare(
      request, progress, RUNNER.value, RUNNER_OPTIONS.value
    )
  print(requests.report(record, request.folder, written))
  if line := training.command(request, record):
    print(f'to train on it:\n{command_line.as_typed(line)}')


def _request(inputs):
  from rnn_jax.data.preparation import requests
  from rnn_jax.data.preparation import splits
  from rnn_jax.data.tables import lines

  return requests.Request(
    name=NAME.value,
    data_dir=DATA_DIR.value,
    inputs=inputs,
    format=FORMAT.value,
    shares=splits.percentages(SPLITS.value) if SPLITS.value else (),
    seed=SEED.value,
    label=LABEL.value,
    classes=tuple(CLASSES.value),
    skip_empty=SKIP_EMPTY.value,
    duplicates=DUPLICATES.value,
    options=lines.Options(DOCUMENT.value, ENCODING.value, DELIMITER.value),
    text=TEXT.value,
    missing_labels=MISSING_LABELS.value,
  )


def _progress(stack, iterable, label):
  """Returns the iterable with a bar, which ends with `stack`.

  An error that ends the command then has a line of its own.
  """
  import tqdm

  return stack.enter_context(tqdm.tqdm(iterable, label, unit='', leave=False))


if __name__ == '__main__':
  command.run(main)
