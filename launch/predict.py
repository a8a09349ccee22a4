"""Predicts the classes of rows, or series, with a trained run.

  python -m launch.predict --workdir=runs/reviews --input=new.csv \\
      --output=predicted.jsonl
  cat new.txt | python -m launch.predict --workdir=runs/reviews --input=-

--input is a .jsonl, .csv, .tsv, .parquet or .txt file (a text per line), '-'
for JSON lines or lines of text from standard input, or, for a model of images,
an image, a glob or a folder. Each row becomes a JSON line: `id`, the columns of
the input, `label` and `probabilities`; a given column of such a name is kept as
input_NAME. With --output=*.csv, *.tsv or *.parquet it becomes a row of such a
table. Of a model of series of numbers, --input is a table as in training, and a
row is a series, or with task 'series_tagging' a step. See docs/inference.md.
"""

import sys

from absl import flags

from launch import command

PURPOSE = 'Use'
WORKDIR, CHECKPOINT = command.define_run()
INPUT = flags.DEFINE_string(
  'input', None, "File to predict, or '-'.", required=True
)
OUTPUT = flags.DEFINE_string(
  'output',
  '',
  'File to write, .jsonl, .csv, .tsv or .parquet; it must not exist yet; '
  'empty: JSON lines on standard output.',
)
FORMAT = flags.DEFINE_string(
  'format',
  '',
  "'jsonl', 'csv', 'parquet' or 'text'; empty: by the name of the file, or by "
  'the first line of standard input.',
)
TEXT = flags.DEFINE_string(
  'text', '', "Column of the text; empty: the run's data.field, or 'text'."
)
DELIMITER = flags.DEFINE_string(
  'delimiter',
  '',
  "Between the values of a CSV input, as ';' or 'tab'; empty: by its header.",
)
ID = flags.DEFINE_string(
  'id', '', "Column of the id; empty: 'id' if it exists, or the row's number."
)
THRESHOLD = flags.DEFINE_float(
  'threshold', 0.0, 'Rows whose class has a lower probability have no label.'
)


def main(argv):
  from rnn_jax import config as config_lib
  from rnn_jax.inference import model as model_lib
  from rnn_jax.inference import predict
  from rnn_jax.inference import predict_output
  from rnn_jax.inference import predict_rows
  from rnn_jax.runs import workdir as workdir_lib
  from rnn_jax.system import streams

  del argv
  if not OUTPUT.value:
    streams.stdout_is_the_result()
  config = config_lib.parse(workdir_lib.load_config(WORKDIR.value))
  request = predict_rows.Request(
    INPUT.value, FORMAT.value, TEXT.value, ID.value, DELIMITER.value
  )
  predict_output.check(OUTPUT.value)
  predict.check_threshold(config, THRESHOLD.value)
  rows = predict_rows.open_rows(request, config)
  delimiter = predict_rows.delimiter(request, config)
  with predict_output.opened(OUTPUT.value, delimiter) as write:
    model = model_lib.load(WORKDIR.value, CHECKPOINT.value)
    count = predict_rows.write_rows(model, rows, write, THRESHOLD.value)
  print(f'{count:,} rows', file=sys.stderr)


if __name__ == '__main__':
  command.run(main)
