"""What a run predicts on a split, and what that is worth.

Writes `workdir`/evaluation/<split>/: predictions.jsonl (a row a prediction,
for tasks that have any, before they are scored), scores.json, scores.png with
95 % intervals, and of classification confusion_matrix.png.
"""

import dataclasses
import json
import pathlib

from rnn_jax import errors
from rnn_jax import files
from rnn_jax.evaluation import intervals
from rnn_jax.evaluation import plots
from rnn_jax.parallel import hosts
from rnn_jax.training import evaluate


def evaluate_run(run, workdir, split, limit=0, bertscore=''):
  """Evaluates a run on a split and writes the files.

  Args:
    run: training.evaluate.Run.
    workdir: its folder.
    split: 'train', 'validation' or 'test', or '', the test split if any.
    limit: predicts the first so many documents; 0: all.
    bertscore: a model's folder for BERTScore, of dialogue; '': none.

  Returns:
    A dict: the scores, JSON-ready. Of several processes the first one has all
    and writes, the others have what is computed together.

  Raises:
    InputError: no such split, an empty one, or what BERTScore lacks, before
      anything is predicted.
  """
  split = run.split(evaluate.check_split(split))
  sums = run.batch_sums(split)
  row = evaluate.describe(run, split, sums)
  run = dataclasses.replace(run, params=hosts.whole(run.params))
  if not hosts.first():
    return row
  scorer = _scorer(run.config.task.name, bertscore)
  folder = pathlib.Path(workdir) / 'evaluation' / split
  folder.mkdir(parents=True, exist_ok=True)
  edges = intervals.of_batches(run.steps.task, sums)
  row['intervals'] = {n: edge for n, edge in edges.items() if n in row}
  predictions = _predict(run, split, limit)
  if predictions:
    # First of all: they are what took the time.
    lines = (json.dumps(p, ensure_ascii=False) + '\n' for p in predictions)
    files.write_whole(folder / 'predictions.jsonl', ''.join(lines))
    found = _scores(run, predictions, scorer)
    # What predictions say of a score replaces what batches say.
    edges = row['intervals'] | found['intervals']
    row |= found | {'intervals': edges, 'predictions': len(predictions)}
  plots.draw_scores(row, folder / 'scores.png')
  if 'confusion_matrix' in row:
    plots.draw_confusion_matrix(row, folder / 'confusion_matrix.png')
  files.write_whole(folder / 'scores.json', json.dumps(row, indent=1) + '\n')
  return row


def table(row):
  """The scores for a reader, lines that follow those of the loss.

  Those of single classes are left to scores.json.
  """
  edges = row.get('intervals', {})
  lines = [
    f'  {name:<14} {row[name]:.4f}   95 %: {edge[0]:.4f} to {edge[1]:.4f}'
    for name, edge in edges.items()
    if not isinstance(edge, dict)
  ]
  lines += [
    f'  {name:<14} {row[name]:.4f}'
    for name in ('distinct1', 'distinct2')
    if name in row
  ]
  return '\n'.join(lines)


def _scorer(task, bertscore):
  """Returns the Scorer of BERTScore, None where none is asked for."""
  if not bertscore:
    return None
  if task != 'dialogue':
    raise errors.InputError(
      f'--bertscore={bertscore!r}: BERTScore is of dialogue, and the run '
      f'learnt {task!r}: leave it out'
    )
  from rnn_jax.evaluation import bertscore as bertscore_lib

  return bertscore_lib.open_scorer(bertscore)


def _predict(run, split, limit):
  """Returns the predictions of a split, none of a language model."""
  # Scores bring large packages along; language modelling needs none of them.
  if run.config.task.name == 'classification':
    from rnn_jax.evaluation import classification

    return classification.predict(run, split, limit)
  if run.config.task.name == 'image_classification':
    from rnn_jax.evaluation import image_classification

    return image_classification.predict(run, split, limit)
  if run.config.task.name == 'dialogue':
    from rnn_jax.evaluation import dialogue

    return dialogue.predict(run, split, limit)
  return []


def _scores(run, predictions, scorer):
  if run.config.task.name == 'dialogue':
    from rnn_jax.evaluation import dialogue

    return dialogue.scores(predictions, scorer)
  from rnn_jax.evaluation import classification

  return classification.scores(predictions, run.config.data.classes)
