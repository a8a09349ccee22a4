"""A split or an interval without a predicted token: a line, and no figure."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import chats

LABELLED, UNLABELLED = 'abcab1=abcab1', 'abcab1=......'
PAIRS = [
  {'prompt': f'{n} p', 'chosen': 'c' * 200, 'rejected': 'r' * 200}
  for n in range(9)
]


def open_rows(folder, rows, task, **data):
  """Opens a corpus of rows; `data` are options of the section."""
  path = folder / 'rows.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  raw = config_lib.default(task=task, source='jsonl')
  raw.data.update({'path': str(path), 'splits': (100, 0, 0), 'workers': 0})
  raw.data.update(data)
  return corpus_lib.Corpus.open(config_lib.parse(raw), folder / 'run')


@pytest.mark.parametrize('layout', ('buckets', 'packed', 'sorted', 'padded'))
def test_pairs_that_fit_no_row_are_refused(tmp_path, layout):
  with pytest.raises(
    errors.InputError,
    match="split='train': none of its 9 documents of .*rows.jsonl .*row of 64: "
    '9 are too long: give a longer data.length',
  ):
    open_rows(
      tmp_path,
      PAIRS,
      'dpo',
      field='prompt,chosen,rejected',
      length=64,
      layout=layout,
    )


def test_a_stage_that_no_pair_fits_is_refused(tmp_path):
  rows, field = PAIRS, 'prompt,chosen,rejected'
  open_rows(tmp_path, rows, 'dpo', field=field, length=512)
  with pytest.raises(errors.InputError, match='row of 128: 9 are too long'):
    open_rows(
      tmp_path,
      rows,
      'dpo',
      field=field,
      length=512,
      length_schedule=(128, 256),
    )


def test_dialogues_without_a_reply_are_refused(tmp_path):
  (tmp_path / 'run').mkdir()
  chats.make(chats.CHATML).save(tmp_path / 'run' / 'tokenizer.json')
  messages = [{'role': 'user', 'content': text} for text in 'ab']
  with pytest.raises(
    errors.InputError,
    match="split='train': none of its 8 documents .* task.name='dialogue'",
  ):
    open_rows(
      tmp_path,
      [{'messages': messages}] * 8,
      'dialogue',
      field='messages',
      tokenizer='pretrained',
      vocabulary=chats.SIZE,
    )


def tagged(folder, splits):
  """Returns the config of a model of files of tagged texts.

  Args:
    folder: of the files.
    splits: {name: texts}.
  """
  raw = config_lib.default('min_lstm', task='tagging', source='text')
  for name, texts in splits.items():
    (folder / name).mkdir()
    for n, text in enumerate(texts):
      (folder / name / f'{n}.txt').write_text(text)
  paths = {name: str(folder / name / '*.txt') for name in splits}
  raw.data.path = paths.pop('train')
  raw.data.update({f'{name}_path': path for name, path in paths.items()})
  raw.data.update(tokenizer='characters', length=8, workers=0, batch_size=1)
  raw.data.update(splits=(100, 0, 0), boundaries=(8,))
  raw.model.update(layers=1, width=8, mlp_width=0)
  raw.train.update(steps=8, checkpoint_every=8, log_every=1)
  raw.sample.new_tokens = 0
  raw.evaluate.batch_size = 1
  return config_lib.parse(raw)


@pytest.mark.parametrize('split', ('train', 'validation'))
def test_a_split_without_labels_is_refused_before_training(tmp_path, split):
  splits = {'train': [LABELLED] * 2, 'validation': ['b=b', 'c=c']}
  splits[split] = [UNLABELLED, 'ab=..']
  with pytest.raises(
    errors.InputError,
    match=f"split='{split}': none of its 2 documents of .*/{split}/0.txt and "
    "1 more .* task.name='tagging'",
  ):
    loop.train(tagged(tmp_path, splits), tmp_path / 'run')
  assert not (tmp_path / 'run' / 'metrics.jsonl').exists()


@pytest.mark.slow
def test_what_has_no_prediction_has_no_figure(tmp_path, caplog):
  splits = {
    'train': [LABELLED, UNLABELLED],
    'validation': [LABELLED, UNLABELLED, 'b=b'],
    'test': ['ab=..'],
  }
  config = tagged(tmp_path, splits)
  progress = loop.train(config, tmp_path / 'run')
  assert progress.finished == 'all steps' and not progress.skipped_steps
  assert "split='test': none of its 1 documents" in caplog.text
  lines = (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()
  losses = [row.get('loss') for row in map(json.loads, lines)]
  assert None in losses and any(losses)
  run = evaluate.Run.open(tmp_path / 'run', 'latest')
  assert evaluate.evaluate_run(run, '')['split'] == 'validation'
  with pytest.raises(errors.InputError, match="split='test': none of its 1"):
    evaluate.evaluate_run(run, 'test')
