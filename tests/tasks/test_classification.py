"""The classifier's sums against NumPy; rows of one or several documents."""

import functools
import json

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import text_svm
from rnn_jax.tasks import classification
from rnn_jax.tasks import language_modeling
from rnn_jax.training import programs as programs_lib
from tests.support import draws
from tests.support import tiny

BYTES = tokenizer_lib.Bytes()
LENGTHS = (3, 6, 4)
CLASSES = (1, 0, 1)


def configure(**task):
  """All that pools can be, unless `task` says otherwise."""
  raw = tiny.raw_config('unused')
  raw.task.name = 'classification'
  raw.data.classes = ('no', 'yes')
  raw.model.update(layers=1, block='plain', mlp_width=0)
  raw.cell.update(preset='simple', heads=1)
  raw.task.update({'pooling': 'concat'} | task)
  return raw


def make_task(raw):
  task = classification.make(config_lib.parse(raw), BYTES)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32),
    jax.eval_shape(task.init_parameters, jax.random.key(0)),
  )
  return task, params


def examples():
  rng = np.random.default_rng(0)
  texts = [rng.integers(0, 256, n) for n in LENGTHS]
  edge = [BYTES.boundary]
  return [
    np.concatenate([edge, text, edge, [BYTES.size + label]]).astype(np.int32)
    for text, label in zip(texts, CLASSES, strict=True)
  ]


def one_per_row(masked=True):
  """A row an example."""
  batch = rows_lib.blank(3, 9)
  for row, ids in enumerate(examples()):
    if masked:
      ids[:-1] = ~ids[:-1]
    rows_lib.write(batch, row, 0, ids)
  batch.starts_BxL[:, 0] = 1
  return batch


def packed():
  """All examples in one row."""
  batch = rows_lib.blank(1, 32)
  at = 0
  for ids in examples():
    batch.starts_BxL[0, at] = 1
    ids[:-1] = ~ids[:-1]
    at = rows_lib.write(batch, 0, at, ids)
  batch.starts_BxL[0, at] = 1
  return batch


def run(task, params, batch):
  rows = len(batch.tokens_BxL)
  state = draws.computed(lambda: task.init_state(rows))
  _, (sums, _) = jax.jit(task.loss)(params, state, batch)
  return sums


@functools.cache
def sums_of(rows):
  """The sums of the texts in rows that `rows` makes."""
  task, params = make_task(configure())
  return run(task, params, rows())


def logits_of(task, params, batch):
  rows = len(batch.tokens_BxL)
  state = draws.computed(lambda: task.init_state(rows))
  given = {'params': params}, state, batch.tokens_BxL, batch.starts_BxL
  return jax.jit(task.model.apply)(*given)[1]


def test_sums_equal_numpy():
  raw = configure()
  raw.train.label_smoothing = 0.2
  task, params = make_task(raw)
  batch = one_per_row()
  sums, logits = run(task, params, batch), logits_of(task, params, batch)
  last = np.array([len(ids) - 2 for ids in examples()])
  logits = np.float64(logits)[np.arange(3), last]
  logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  nats = -logp[np.arange(3), CLASSES]
  assert sums['weight'] == 3
  assert sums['hits'] == (logp.argmax(-1) == CLASSES).sum()
  np.testing.assert_allclose(sums['loss'], nats.sum(), rtol=1e-5)
  smooth = 0.8 * nats - 0.2 * logp.mean(-1)
  np.testing.assert_allclose(sums['objective'], smooth.sum(), rtol=1e-5)
  metrics = task.summarize({name: float(x) for name, x in sums.items()})
  assert metrics['accuracy'] == sums['hits'] / 3


def test_texts_that_share_a_row_are_classified_as_in_separate_rows():
  together, apart = sums_of(packed), sums_of(one_per_row)
  for name, value in apart.items():
    np.testing.assert_allclose(together[name], value, rtol=1e-5, err_msg=name)


def test_segments_of_time_give_the_same_sums():
  raw = configure()
  raw.remat.segment = 5
  parts, params = make_task(raw)
  whole, in_segments = sums_of(packed), run(parts, params, packed())
  for name, value in whole.items():
    np.testing.assert_allclose(
      in_segments[name], value, rtol=1e-5, err_msg=name
    )


def test_the_text_adds_its_loss_times_its_weight():
  task, params = make_task(configure(text_weight=0.5))
  batch = one_per_row(masked=False)
  sums = run(task, params, batch)
  text = batch._replace(
    weights_BxL=batch.weights_BxL * (batch.targets_BxL < BYTES.size),
    targets_BxL=np.minimum(batch.targets_BxL, BYTES.size - 1),
  )
  language = language_modeling.Task(config_lib.parse(configure()), BYTES)
  nats = run(language, params['body'], text)['loss']
  np.testing.assert_allclose(
    sums['objective'], sums['loss'] + 0.5 * nats, rtol=1e-5
  )
  assert sums['weight'] == 3


def test_a_written_class_is_a_language_model():
  raw = configure(answer='word', pooling='mean')
  task = classification.make(config_lib.parse(raw), BYTES)
  assert isinstance(task, language_modeling.Task)


def test_evidence_starts_as_naive_bayes(tmp_path):
  texts = ('ab', 'abb', 'cb', 'c')
  rows = [{'text': t, 'label': n // 2} for n, t in enumerate(texts)]
  (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  raw = configure(evidence=0.5)
  raw.data.source, raw.data.path = 'jsonl', str(tmp_path / 'a.jsonl')
  raw.data.splits = (100, 0, 0)
  config = config_lib.parse(raw)
  corpus = corpus_lib.Corpus.open(config, tmp_path / 'run')
  task, params = make_task(raw)
  params['table'] = jax.tree.map(np.zeros_like, params['table'])
  # Texts of each class that hold a token, one added.
  counts = {'a': (3, 1), 'b': (3, 2), 'c': (1, 3), 'x': (1, 1)}
  present = np.array([[2 + 2 + 2 + 257, 1 + 2 + 2 + 257]])
  table = task.init_from_data(params, corpus)['table']['embedding']
  for letter, present_in in counts.items():
    logp = np.log(np.array(present_in) / present[0])
    expected = 0.5 * (logp - logp.mean())
    np.testing.assert_allclose(table[ord(letter)], expected, rtol=1e-5)
  batch = one_per_row()
  both = jax.tree.map(
    lambda *x: np.stack(x), params, task.init_from_data(params, corpus)
  )
  logits = jax.vmap(lambda p: logits_of(task, p, batch))(both)
  expected = np.cumsum(table[batch.tokens_BxL], 1)
  np.testing.assert_allclose(logits[1] - logits[0], expected, atol=1e-5)


def test_weights_of_classes_equal_numpy():
  raw = configure(class_weights=(0.5, 3.0))
  raw.train.label_smoothing = 0.2
  task, params = make_task(raw)
  batch = one_per_row()
  sums, logits = run(task, params, batch), logits_of(task, params, batch)
  last = np.array([len(ids) - 2 for ids in examples()])
  logits = np.float64(logits)[np.arange(3), last]
  logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  nats = -logp[np.arange(3), CLASSES]
  own = np.array([0.5, 3.0])[list(CLASSES)]
  mixed = own @ (0.8 * nats - 0.2 * logp.mean(-1))
  np.testing.assert_allclose(sums['objective'], mixed, rtol=1e-5)
  np.testing.assert_allclose(sums['objective_weight'], own.sum(), rtol=1e-6)
  # Scores are unweighted.
  np.testing.assert_allclose(sums['loss'], nats.sum(), rtol=1e-5)
  assert sums['weight'] == 3
  assert 'objective_weight' not in sums_of(one_per_row)


@pytest.mark.slow
def test_weighted_gradients_of_parts_are_those_of_the_whole_batch():
  gradients = []
  batch = jax.tree.map(np.asarray, four_per_batch())
  for parts in (1, 2):
    raw = configure(class_weights=(0.25, 4.0))
    raw.train.accumulate = parts
    raw.optimizer.name = 'sgd'
    raw.data.batch_size = 4
    programs = programs_lib.from_config(config_lib.parse(raw), BYTES)
    state = programs.states.init(4)
    own, _, sums = programs.compute_gradients(state, batch)
    gradients.append(own)
    weight = float(sums['objective_weight'])
    assert weight == pytest.approx(3 * 4.0 + 0.25)
  for a, b in zip(*map(jax.tree.leaves, gradients), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  # The mean over the weights: of the loss of single texts, weighted.
  task, _ = make_task(configure(class_weights=(0.25, 4.0)))
  params = jax.device_get(state.params)

  def mean(params):
    _, (sums, _) = task.loss(params, task.init_state(4), batch)
    return sums['objective'] / 12.25

  wanted = jax.jit(jax.grad(mean))(params)
  for a, b in zip(*map(jax.tree.leaves, (gradients[0], wanted)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def four_per_batch():
  """A row an example, and the first one again, of uneven classes."""
  batch = rows_lib.blank(4, 9)
  for row, ids in enumerate([*examples(), examples()[0]]):
    rows_lib.write(batch, row, 0, np.append(~ids[:-1], ids[-1]))
  batch.starts_BxL[:, 0] = 1
  return batch


def test_a_linear_machine_has_half_of_the_vote_and_no_gradient():
  task, params = make_task(configure(svm=1.0, pairs=16))
  batch = one_per_row()
  sums = run(task, params, batch)
  alone = run(make_task(configure())[0], params, batch)
  np.testing.assert_allclose(sums['objective'], alone['objective'], rtol=1e-6)
  machine = text_svm.Svm(text_svm.Sizes(BYTES.size, 16, 2))
  own = {'params': params['svm']}
  _, linear = draws.computed(
    lambda: machine.apply(
      own, machine.init_state(3), batch.tokens_BxL, batch.starts_BxL
    )
  )
  network = logits_of(make_task(configure())[0], params, batch)
  p = np.mean([jax.nn.softmax(x) for x in (network, linear)], 0)
  last = np.array([len(ids) - 2 for ids in examples()])
  own_p = np.float64(p)[np.arange(3), last, CLASSES]
  np.testing.assert_allclose(sums['loss'], -np.log(own_p).sum(), rtol=1e-5)
  np.testing.assert_allclose(
    jax.nn.softmax(logits_of(task, params, batch)), p, rtol=1e-4
  )

  def objective(params):
    return task.loss(params, task.init_state(3), batch)[0]

  gradient = jax.jit(jax.grad(objective))(params)
  assert not np.any(gradient['svm']['table'])
  assert np.any(gradient['head']['kernel'])


def test_a_run_begins_with_the_machine_of_its_training_texts(tmp_path):
  texts = ('ab', 'abb', 'cb', 'c')
  rows = [{'text': t, 'label': n // 2} for n, t in enumerate(texts)]
  (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  raw = configure(svm=1.0, pairs=16)
  raw.data.source, raw.data.path = 'jsonl', str(tmp_path / 'a.jsonl')
  raw.data.splits = (100, 0, 0)
  corpus = corpus_lib.Corpus.open(config_lib.parse(raw), tmp_path / 'run')
  task, params = make_task(raw)
  table = task.init_from_data(params, corpus)['svm']['table']
  edge = [BYTES.boundary]
  framed = [np.int32([*edge, *text.encode(), *edge]) for text in texts]
  sizes = text_svm.Sizes(BYTES.size, 16, 2)
  expected = text_svm.fit(framed, np.array([0, 0, 1, 1]), sizes, 1.0)
  np.testing.assert_array_equal(table, expected)
