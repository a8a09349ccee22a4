"""Scores texts with the language model of a run.

    python -m launch.score --workdir=runs/demo --input=notes.txt
    python -m launch.score --workdir=runs/demo --input=rows.jsonl --json
    python -m launch.score --workdir=runs/demo --text='def main(' --top_k=3
    python -m launch.score --workdir=runs/demo --input=main.py --html=page.html

Prints a row per text, as soon as it is made: the loss in nats per token, bits
per byte next to gzip and xz, perplexity. A file is a text; with --lines a line
is one, and in a table (*.jsonl, *.csv, *.tsv, *.parquet) a row. --json prints
one JSON object per text. --html draws how surprising each token is.
docs/scoring.md says what the numbers mean.
"""

from absl import flags

from launch import command

PURPOSE = 'Use'
WORKDIR, CHECKPOINT = command.define_run()
INPUT = flags.DEFINE_multi_string(
  'input', [], 'A file, a glob, or - for standard input; may be repeated.'
)
TEXT = flags.DEFINE_string('text', None, 'A text to score.')
LINES = flags.DEFINE_bool('lines', False, 'Each line of a file is a text.')
COLUMN = flags.DEFINE_string(
  'column',
  '',
  "Column of the text in a table; empty: 'text'. With it, - is JSONL.",
)
TOP_K = flags.DEFINE_integer(
  'top_k',
  None,
  'Likeliest tokens to show in the place of each. Default: 5 with --html, '
  'else 0.',
)
PER_TOKEN = flags.DEFINE_bool('per_token', False, 'Show each token.')
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object per text.')
WEIGHTS = flags.DEFINE_enum(
  'weights',
  'float32',
  ['float32', 'bfloat16', 'int8', 'int8_blocks', 'int4'],
  'Format of the weights in memory.',
)
HTML = flags.DEFINE_string('html', '', 'Write a coloured page to this file.')


def main(argv):
  from rnn_jax.inference import score_run
  from rnn_jax.system import streams

  del argv
  streams.stdout_is_the_result()
  options = score_run.Options(
    top_k=TOP_K.value,
    per_token=PER_TOKEN.value,
    json=JSON.value,
    page=HTML.value,
  )
  texts = score_run.open_texts(
    TEXT.value, tuple(INPUT.value), LINES.value, COLUMN.value
  )
  score_run.score_run(
    WORKDIR.value, CHECKPOINT.value, texts, options, WEIGHTS.value
  )


if __name__ == '__main__':
  command.run(main)
