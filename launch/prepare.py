"""Raw files to a TFDS dataset, without TensorFlow.

    python -m launch.prepare --name=reviews --input=reviews.csv \
        --splits=85,10,5 --data_dir=data

writes data/reviews/1.0.0, which any `tfds.builder_from_directory` reads. Inputs
are JSONL, CSV or TSV, text, Parquet, the original rt-polarity and DailyDialog
files, CIFAR-10's tarball, and pictures by class in a folder or zip. Name an
input's split, --input=train=a.jsonl --input=test=b.jsonl, or give a folder of
files that begin with it; else --splits deals them out. A second call with the
same inputs does nothing.
"""

from absl import flags

from launch import command

NAME = flags.DEFINE_string('name', None, 'Name of the dataset.')
DATA_DIR = flags.DEFINE_string('data_dir', 'data', 'Folder of datasets.')
INPUT = flags.DEFINE_multi_string(
  'input', [], '[train=|validation=|test=]file, glob or folder; repeat it.'
)
FORMAT = flags.DEFINE_string(
  'format', '', "Format of all inputs; empty: by each file's name."
)
SPLITS = flags.DEFINE_string(
  'splits', '', 'Per cent of train, validation, test, as in 85,10,5.'
)
SEED = flags.DEFINE_integer('seed', 0, 'Of the order that --splits deals by.')
LABEL = flags.DEFINE_string(
  'label', None, "Column of classes; default: 'label' if there; '': none."
)
CLASSES = flags.DEFINE_list('classes', [], 'Names of the classes, in order.')
DOCUMENT = flags.DEFINE_enum(
  'document', 'line', ['line', 'file'], 'What an example of a text file is.'
)
ENCODING = flags.DEFINE_string('encoding', 'utf-8', 'Of text files.')
SKIP_EMPTY = flags.DEFINE_bool(
  'skip_empty', False, 'Leave out examples with an empty text, turn or list.'
)
DUPLICATES = flags.DEFINE_enum(
  'duplicates',
  'report',
  ['report', 'refuse'],
  'What to do about examples that two splits share.',
)


def main(argv):
  import tqdm

  from rnn_jax import errors
  from rnn_jax.data.preparation import examples
  from rnn_jax.data.preparation import prepare
  from rnn_jax.data.preparation import report
  from rnn_jax.data.preparation import splits

  del argv
  if not NAME.value:
    raise errors.InputError('--name is missing: name the dataset')
  request = prepare.Request(
    NAME.value,
    DATA_DIR.value,
    tuple(INPUT.value),
    FORMAT.value,
    splits.shares(SPLITS.value) if SPLITS.value else (),
    SEED.value,
    LABEL.value,
    tuple(CLASSES.value),
    SKIP_EMPTY.value,
    DUPLICATES.value,
    examples.Options(DOCUMENT.value, ENCODING.value),
  )

  def progress(iterable, told):
    return tqdm.tqdm(iterable, told, unit='', leave=False)

  record, written = prepare.prepare(request, progress)
  print(report.text(record, request.folder, written))


if __name__ == '__main__':
  command.run(main)
