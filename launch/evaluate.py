"""Evaluates a checkpoint of a run on a held-out split.

    python -m launch.evaluate --workdir=runs/demo --split=test

Prints the loss and the task's scores: perplexity and, for lossless tokenizers,
bits per byte beside gzip and xz of language models; accuracy and macro-F1 of
classifiers; BLEU, ROUGE and distinct n-grams of dialogue, and BERTScore by a
model on disk. Writes every prediction, the scores with their confidence
intervals, and plots to WORKDIR/evaluation/SPLIT/. --json prints the scores as
one JSON object.
"""

import json

from absl import flags

from launch import command
from launch import hosts

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
SPLIT = flags.DEFINE_string(
  'split', '', "'train', 'validation' or 'test'; empty: test if there is one."
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint', 'best', "'best', 'latest' or the number of a step."
)
LIMIT = flags.DEFINE_integer(
  'limit', 0, 'Write predictions for the first so many documents; 0: all.'
)
BERTSCORE = flags.DEFINE_string(
  'bertscore',
  '',
  'Dialogue: folder of a model for BERTScore, or its name in the local cache; '
  'nothing is fetched; empty: none.',
)
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object.')


def main(argv):
  from rnn_jax import errors
  from rnn_jax.evaluation import run as run_lib
  from rnn_jax.parallel import hosts as hosts_lib
  from rnn_jax.training import checkpoint
  from rnn_jax.training import evaluate
  from rnn_jax.training import progress

  del argv
  if not WORKDIR.value:
    raise errors.InputError("--workdir is missing: name a run's folder")
  if LIMIT.value < 0:
    raise errors.InputError(f'--limit={LIMIT.value}: give 0 or more')
  evaluate.check_split(SPLIT.value)
  which = checkpoint.parse_which(CHECKPOINT.value)
  with hosts.joined(stops_together=False):
    run = evaluate.Run.open(WORKDIR.value, which)
    row = run_lib.evaluate_run(
      run, WORKDIR.value, SPLIT.value, LIMIT.value, BERTSCORE.value
    )
    if not hosts_lib.first():
      return
  if JSON.value:
    print(json.dumps(row))
    return
  print(progress.evaluation_table(row))
  if scores := run_lib.table(row):
    print(scores)


if __name__ == '__main__':
  command.run(main)
