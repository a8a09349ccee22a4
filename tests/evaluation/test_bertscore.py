"""BERTScore by a tiny random BERT; errors come before decoding."""

import shutil
import socket
import sys

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.evaluation import bertscore

SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
VOCABULARY = [*SPECIAL, 'the', 'cat', 'sat', 'on', 'mat', 'a', '.']
NAME = 'somebody/tiny'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A BERT of 16 positions, whose tokenizer knows no limit."""
  import torch
  import transformers

  where = tmp_path_factory.mktemp('model')
  (where / 'vocab.txt').write_text('\n'.join(VOCABULARY))
  tokenizer = transformers.BertTokenizer(str(where / 'vocab.txt'))
  tokenizer.save_pretrained(where)
  torch.manual_seed(0)
  config = transformers.BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
  )
  transformers.BertModel(config).save_pretrained(where)
  return where


def rows(*pairs):
  return [{'predicted': p, 'reference': r} for p, r in pairs]


def by_hand(folder, written, reference):
  """Greedy matches of words' vectors, both ways."""
  import torch
  import transformers

  model = transformers.BertModel.from_pretrained(folder).eval()

  def vectors(text):
    ids = [2, *(VOCABULARY.index(word) for word in text.split()), 3]
    with torch.no_grad():
      x = model(torch.tensor([ids])).last_hidden_state[0].numpy()
    return x / np.linalg.norm(x, axis=1, keepdims=True)

  cosines = vectors(written) @ vectors(reference).T
  precision = cosines.max(1)[1:-1].mean()
  recall = cosines.max(0)[1:-1].mean()
  return precision, recall, 2 * precision * recall / (precision + recall)


@pytest.mark.peers
def test_scores_are_greedy_matches_and_0_of_what_is_empty(folder):
  scorer = bertscore.open_scorer(str(folder))
  written, reference = 'the cat sat', 'a cat on the mat .'
  scores = scorer.scores(
    rows(
      (written, reference), ('', reference), (reference, reference), (' ',) * 2
    )
  )
  assert [*scores] == [
    'bertscore_precision',
    'bertscore_recall',
    'bertscore_f1',
  ]
  expected = by_hand(folder, written, reference)
  assert expected[0] > expected[1] + 0.01  # the reference has more words
  for each, value in zip(scores.values(), expected, strict=True):
    np.testing.assert_allclose(each, (value, 0, 1, 0), atol=1e-5)
  assert not any(x.any() for x in scorer.scores(rows(('', 'cat'))).values())


@pytest.mark.peers
def test_a_long_text_is_cut_to_the_model_s_positions(folder):
  scorer = bertscore.open_scorer(str(folder))
  long, cut = ' '.join(['cat'] * 40), ' '.join(['cat'] * 13)
  scores = scorer.scores(rows((long, 'the cat'), (cut, 'the cat')))
  scores = scores['bertscore_f1']
  assert scores[0] == pytest.approx(scores[1], abs=1e-6)


@pytest.mark.peers
def test_a_name_is_looked_up_in_the_cache(folder, tmp_path, monkeypatch):
  from huggingface_hub import constants

  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path))
  revision = '0' * 40
  cached = tmp_path / ('models--' + NAME.replace('/', '--'))
  shutil.copytree(folder, cached / 'snapshots' / revision)
  (cached / 'refs').mkdir()
  (cached / 'refs' / 'main').write_text(revision)
  scores = bertscore.open_scorer(NAME).scores(rows(('a cat', 'a cat')))
  assert scores['bertscore_f1'][0] > 0.99


@pytest.mark.peers
def test_nothing_is_fetched(folder, tmp_path, monkeypatch):
  asked = []

  def refuse(*address, **_):
    asked.append(address)
    raise OSError('no network in this test')

  monkeypatch.setattr(socket, 'getaddrinfo', refuse)
  monkeypatch.setattr(socket.socket, 'connect', refuse)
  bertscore.open_scorer(str(folder))
  (tmp_path / 'empty').mkdir()
  for name in (NAME, 'no-such-model', '/no/such/folder', tmp_path / 'empty'):
    with pytest.raises(errors.InputError, match='--bertscore=.*name a folder'):
      bertscore.open_scorer(str(name))
  assert not asked


@pytest.mark.peers
def test_a_folder_that_the_package_takes_for_a_t5_is_named(folder, tmp_path):
  shutil.copytree(folder, tmp_path / 'best5')
  with pytest.raises(errors.InputError, match="a 'bert': rename the folder"):
    bertscore.open_scorer(str(tmp_path / 'best5'))


def test_a_missing_package_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'bert_score', None)
  with pytest.raises(errors.InputError, match="--bertscore='m'.*pip install"):
    bertscore.open_scorer('m')
