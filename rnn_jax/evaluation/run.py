"""What a run predicts on a split, and what that is worth.

Writes `workdir`/evaluation/<split>/: predictions.jsonl (a row a prediction,
for tasks that have any), scores.json, scores.png with 95 % intervals, and of
classification confusion_matrix.png.
"""

import dataclasses
import json
import pathlib

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
    InputError: no such split, an empty one, or what BERTScore lacks.
  """
  split = run.split(evaluate.check_split(split))
  sums = run.batch_sums(split)
  row = evaluate.describe(run, split, sums)
  run = dataclasses.replace(run, params=hosts.whole(run.params))
  if not hosts.first():
    return row
  folder = pathlib.Path(workdir) / 'evaluation' / split
  folder.mkdir(parents=True, exist_ok=True)
  if run.config.task.name == 'language_modeling':
    row['intervals'] = intervals.of_batches(run.steps.task, sums)
  predictions, found = _predict(run, split, limit, bertscore)
  row |= found
  if predictions:
    row['predictions'] = len(predictions)
    lines = (json.dumps(p, ensure_ascii=False) + '\n' for p in predictions)
    files.write_whole(folder / 'predictions.jsonl', ''.join(lines))
    plots.draw_scores(row, folder / 'scores.png')
  if 'confusion_matrix' in row:
    plots.draw_confusion_matrix(row, folder / 'confusion_matrix.png')
  files.write_whole(folder / 'scores.json', json.dumps(row, indent=1) + '\n')
  return row


def table(row):
  """The scores for a reader, lines that follow those of the loss."""
  edges = row.get('intervals', {})
  lines = []
  for name, (low, high) in edges.items():
    lines.append(
      f'  {name:<14} {row[name]:.4f}   95 %: {low:.4f} to {high:.4f}'
    )
  if 'bertscore_f1' in row:
    lines.append(f'  {"bertscore_f1":<14} {row["bertscore_f1"]:.4f}')
  return '\n'.join(lines)


def _predict(run, split, limit, bertscore):
  """Returns (predictions, scores), both empty of a language model."""
  # Scores bring large packages along; language modelling needs none of them.
  if run.config.task.name == 'classification':
    from rnn_jax.evaluation import classification

    predictions = classification.predict(run, split, limit)
    classes = run.config.data.classes
    return predictions, classification.scores(predictions, classes)
  if run.config.task.name == 'image_classification':
    from rnn_jax.evaluation import classification
    from rnn_jax.evaluation import image_classification

    predictions = image_classification.predict(run, split, limit)
    classes = run.config.data.classes
    return predictions, classification.scores(predictions, classes)
  if run.config.task.name == 'dialogue':
    from rnn_jax.evaluation import dialogue

    predictions = dialogue.predict(run, split, limit)
    scores = dialogue.scores(predictions)
    if bertscore:
      scores |= dialogue.bert_score(predictions, bertscore)
    return predictions, scores
  return [], {}
