"""Evaluates a checkpoint of a run on a held-out split.

    python -m launch.evaluate --workdir=runs/demo --split=test

Prints loss, perplexity and, for lossless tokenizers, bits per byte beside
those of gzip and xz on the same documents; --json prints one JSON object.
"""

import json

from absl import flags

from launch import command

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
SPLIT = flags.DEFINE_string(
  'split', '', "'train', 'validation' or 'test'; empty: test if there is one."
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint', 'best', "'best', 'latest' or the number of a step."
)
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object.')


def main(argv):
  from rnn_jax import errors
  from rnn_jax.training import evaluate
  from rnn_jax.training import progress

  del argv
  if not WORKDIR.value:
    raise errors.InputError("--workdir is missing: name a run's folder")
  which = CHECKPOINT.value
  row = evaluate.evaluate_run(
    WORKDIR.value, SPLIT.value, int(which) if which.isdigit() else which
  )
  print(json.dumps(row) if JSON.value else progress.evaluation_table(row))


if __name__ == '__main__':
  command.run(main)
