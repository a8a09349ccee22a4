"""Scores against the training loss and a float64 log-softmax."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import rows
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_training
from rnn_jax.inference import chunks
from rnn_jax.inference import framing
from rnn_jax.inference import score
from rnn_jax.models import packed_weights
from rnn_jax.runs import bundle as bundle_lib
from tests.support import corpora

K = 4  # most likely tokens; one number, one program
BYTES = tokenizer_lib.Bytes()
TEXT = 'The café reads the gate, twice. ' * 3  # 99 bytes
TEXTS = TEXT, 'def main(', '', 'é' * 20
CELLS = {
  'simple_rnn': {'heads': 2, 'key_width': 4, 'value_width': 6},
  'attention': {'heads': 2, 'head_width': 4, 'window': 7},
}


@functools.cache
def make(cell='simple_rnn', task='language_modeling', tokenizer=BYTES, **model):
  """A small model of random parameters."""
  raw = config_lib.default(cell, task=task)
  raw.model.update(layers=1, width=12, mlp_width=16, **model)
  raw.cell.update(CELLS[cell])
  raw.data.length = 128
  raw.sample.new_tokens = 8
  if task == 'recall':
    raw.data.source = 'recall'
  config = config_lib.parse(raw)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.4, x.shape).astype(np.float32),
    bundle_lib.like(config, tokenizer),
  )
  return bundle_lib.Bundle(config, tokenizer, params)


@functools.cache
def scorer(**options):
  return score.Scorer(make(**options))


def training_sums(bundle, ids):
  """The sums of the task's loss on a row of ids, as in training."""
  tasks = config_lib.load('tasks', bundle.config.task.name, 'task.name')
  task = tasks.make(bundle.config, bundle.tokenizer)
  batch = rows.blank(1, 128)
  end = rows.write(batch, 0, 0, ids)
  batch.starts_BxL[0, [0, end]] = 1
  loss = jax.jit(lambda p: task.loss(p, task.init_state(1), batch)[1][0])
  return jax.tree.map(float, loss(bundle.params))


def framed(text):
  return np.array([BYTES.boundary, *text.encode(), BYTES.boundary])


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch):
  """A text has several chunks."""
  monkeypatch.setattr(chunks, 'LENGTHS', (8, 32))


def score_one(text, **options):
  return scorer(**options).score([text], top_k=K)[0]


@pytest.mark.parametrize('cell', CELLS)
def test_the_loss_is_that_of_training_in_one_pass(cell, monkeypatch):
  monkeypatch.setattr(chunks, 'LENGTHS', (32,))
  sums = training_sums(make(cell), framed(TEXT))
  got = score_one(TEXT, cell=cell)
  assert got.token_count == sums['weight'] == 100 > 3 * 32
  assert got.byte_count == sums['bytes'] == len(TEXT.encode())
  np.testing.assert_allclose(-got.logprob, sums['loss'], rtol=2e-6)
  assert np.sum(got.values.rank_L == 1) == sums['hits']


def test_other_chunks_give_the_same_numbers(monkeypatch):
  rows = [(framed(TEXT)[:-1], framed(TEXT)[1:])]
  a, several = score_one(TEXT), [*chunks.split(rows)]
  monkeypatch.setattr(chunks, 'LENGTHS', (128,))
  b, others = score_one(TEXT), [*chunks.split(rows)]
  assert len(several) > len(others)
  np.testing.assert_allclose(a.values.logprob_L, b.values.logprob_L, atol=1e-5)


def test_every_number_is_that_of_a_float64_log_softmax_over_the_logits():
  z_LxV = np.float64(scorer().logits(TEXT))
  largest = z_LxV.max(-1, keepdims=True)
  logp_LxV = z_LxV - largest
  logp_LxV -= np.log(np.exp(logp_LxV).sum(-1, keepdims=True))
  ids_L = framed(TEXT)[1:]
  wanted_L = logp_LxV[np.arange(len(ids_L)), ids_L]
  got = score_one(TEXT)
  values = got.values
  np.testing.assert_allclose(values.logprob_L, wanted_L, atol=1e-5)
  np.testing.assert_allclose(got.loss, -wanted_L.mean(), rtol=1e-6)
  np.testing.assert_allclose(got.perplexity, math.exp(-wanted_L.mean()), 1e-5)
  bits = -wanted_L.sum() / math.log(2) / len(TEXT.encode())
  np.testing.assert_allclose(got.bits_per_byte, bits, rtol=1e-6)
  ranks_L = (logp_LxV > wanted_L[:, None]).sum(-1) + 1
  np.testing.assert_array_equal(values.rank_L, ranks_L)
  entropy_L = -(np.exp(logp_LxV) * logp_LxV).sum(-1)
  np.testing.assert_allclose(values.entropy_L, entropy_L, rtol=1e-5)
  best_LxK = np.argsort(-logp_LxV, -1)[:, :K]
  np.testing.assert_array_equal(values.top_LxK, best_LxK)
  wanted_LxK = np.take_along_axis(logp_LxV, best_LxK, -1)
  np.testing.assert_allclose(values.top_logprob_LxK, wanted_LxK, atol=1e-5)


def test_a_score_is_the_same_to_the_bit_whatever_the_other_texts():
  texts = [TEXT * 9, *TEXTS]
  together = scorer().score(texts, top_k=K)
  for text, a in zip(texts, together, strict=True):
    b = score_one(text)
    for x, y in zip(a.values, b.values, strict=True):
      assert x.tobytes() == y.tobytes()


def test_rows_are_the_models_before_and_after_its_norm():
  bundle, own = make(), scorer()
  x_LxD = own.features(TEXT)
  h_LxD = own.hidden(TEXT).astype(np.float64)
  normed = h_LxD / np.sqrt((h_LxD**2).mean(-1, keepdims=True) + 1e-6)
  np.testing.assert_allclose(x_LxD, normed, rtol=1e-4, atol=1e-4)
  head = bundle.params['head']
  logits = x_LxD.astype(np.float64) @ head['kernel'] + head['bias']
  np.testing.assert_allclose(own.logits(TEXT), logits, atol=1e-4)


def test_tokens_have_their_place_in_the_text():
  got = score_one('aé')
  tokens = [*got.tokens()]
  assert [t.text for t in tokens] == ['a', '\\xc3', '\\xa9', '']
  assert [(t.start, t.stop) for t in tokens] == [(0, 1), (1, 2), (2, 3), (3, 3)]
  assert [t.id for t in tokens] == [97, 0xC3, 0xA9, BYTES.boundary]
  for token in tokens:
    assert len(token.top) == K and token.counted
    assert token.top[0].logprob >= max(token.top[1].logprob, token.logprob)
    assert (token.rank == 1) == (token.top[0].id == token.id)
  np.testing.assert_allclose(
    sum(token.bits for token in tokens), -got.logprob / math.log(2), rtol=1e-6
  )


def test_an_empty_text_is_only_its_end():
  got = score_one('')
  assert (got.token_count, got.byte_count) == (1, 0)
  assert got.framed.first == got.framed.ids_L[0] == BYTES.boundary
  assert got.bits_per_byte is None and got.loss > 0


def test_programs_are_few_and_nothing_moves_implicitly():
  own = scorer()
  score._values.clear_cache()
  with jax.transfer_guard('disallow'):
    texts = ['a' * n for n in (0, 1, 6, 7, 8, 20, 31, 32, 70)]
    for top_k in (21, 30):
      values = own.score(texts, top_k)[0].values
      assert values.top_LxK.shape == values.top_logprob_LxK.shape == (1, top_k)
  assert score._values._cache_size() == 2


def test_learned_positions_limit_the_length():
  own = scorer(positions='learned', max_positions=128)
  (got,) = own.score(['x' * 127])
  assert np.isfinite(got.values.logprob_L).all() and got.token_count == 128
  with pytest.raises(errors.InputError, match="129 .* 128: .*='sinusoidal'"):
    own.score(['x' * 128])


def test_packed_weights_score_as_the_rounded_model_does():
  bundle = make()
  packed = packed_weights.pack(bundle.params, 'int8')
  rounded = jax.device_get(packed_weights.unpack(packed))
  a, b = (
    score.Scorer(dataclasses.replace(bundle, params=params))
    .score(['gate'], K)[0]
    .logprob
    for params in (packed, rounded)
  )
  # Native products round what they multiply to 16 bits; measured: 8e-6.
  np.testing.assert_allclose(a, b, rtol=1e-4)
  assert abs(a - score_one('gate').logprob) > 5e-3


def test_only_the_replies_of_a_dialogue_count():
  bundle = make(task='dialogue')
  got = score_one('Hello.\nHi you!\nBye.', task='dialogue')
  end = [BYTES.boundary]
  turns = [[*turn, *end] for turn in (b'Hello.', b'Hi you!', b'Bye.')]
  ids = np.array(end + turns[0] + turns[1] + turns[2])
  ids[: 1 + len(turns[0])] = ~ids[: 1 + len(turns[0])]
  sums = training_sums(bundle, ids)
  assert got.token_count == sums['weight'] == 8 + 5
  np.testing.assert_allclose(-got.logprob, sums['loss'], rtol=2e-6)
  assert got.bits_per_byte is None
  tokens = [*got.tokens()]
  assert [t.counted for t in tokens] == [False] * 7 + [True] * 13
  for token in tokens:
    assert got.text.encode()[token.start : token.stop].decode() == token.text
  with pytest.raises(errors.InputError, match="'Hello': task.*two turns"):
    scorer(task='dialogue').score(['Hello'])


def test_only_the_answers_of_recall_count():
  got = score_one('ab?a=b', task='recall')
  assert got.framed.counted_L.tolist() == [False] * 5 + [True]
  with pytest.raises(errors.InputError, match='like those of its training'):
    scorer(task='recall').score(['ab'])


def test_bad_inputs_are_refused():
  bundle = make()
  tasks = config_lib.load('tasks', 'classification', 'task.name')
  task = tasks.Config(name='classification')
  config = dataclasses.replace(bundle.config, task=task)
  with pytest.raises(errors.InputError, match='predicts classes.*use predict'):
    score.Scorer(dataclasses.replace(bundle, config=config))
  for texts, top_k, message in (
    (['a'], 258, 'top_k=258: give 0 to 257'),
    (['a'], -1, 'top_k=-1'),
    ('abc', 0, "texts='abc': give a list"),
    ([b'\xff'], 0, "isn't UTF-8"),
    (['\ud800'], 0, "isn't UTF-8"),
  ):
    with pytest.raises(errors.InputError, match=message):
      scorer().score(texts, top_k)


def test_a_model_that_diverged_has_a_score_of_nan():
  bundle = make()
  params = jax.tree.map(lambda x: np.full_like(x, np.nan), bundle.params)
  broken = score.Scorer(dataclasses.replace(bundle, params=params))
  (got,) = broken.score(['ab'], top_k=K)
  assert math.isnan(got.loss) and math.isnan(got.perplexity)
  assert math.isnan(got.bits_per_byte)


def words():
  """A lossy tokenizer of words, with an unknown token."""
  raw = config_lib.default()
  raw.data.update(tokenizer='bpe', pre_tokenizer='whitespace', vocabulary=20)
  documents = corpora.in_memory('the gate reads the gate', 'the reads')
  return tokenizer_training.train(config_lib.parse(raw).data, documents)


@pytest.mark.parametrize(
  ('tokenizer', 'text', 'pieces'),
  (
    (BYTES, 'né\n', [b'n', b'\xc3', b'\xa9', b'\n', b'']),
    (
      tokenizer_lib.Characters('\nab'),
      'aéb\n a',
      [b'a', 'é'.encode(), b'b', b'\n', b' ', b'a', b''],
    ),
    (
      words(),
      ' the  gaté\nreads',
      [b'the', b'gat', 'é'.encode(), b'reads', b''],
    ),
    (tokenizer_lib.Numbers(9), '3  7\n0', [b'3', b'7', b'0', b'']),
  ),
  ids=('bytes', 'characters', 'words', 'numbers'),
)
def test_spans_lead_back_to_the_text(tokenizer, text, pieces):
  bundle = dataclasses.replace(make(), tokenizer=tokenizer)
  whole = framing.frame(bundle, text)
  content = text.encode()
  spans = framing.spans(whole, tokenizer).tolist()
  assert [content[start:stop] for start, stop in spans] == pieces


def test_what_is_not_found_has_no_span():
  whole = framing.frame(dataclasses.replace(make()), 'abc')
  whole = dataclasses.replace(whole, text=b'ac')
  assert framing.spans(whole, BYTES).tolist()[:2] == [[0, 1], [-1, -1]]
