"""Preferences against their equation in float64, and as a run."""

import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base
from rnn_jax.data.text.examples import dpo as examples
from rnn_jax.inference import generate
from rnn_jax.inference import score
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import origin
from rnn_jax.tasks import dpo
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import bundles
from tests.support import corpora
from tests.support import shared
from tests.support import tiny

BETA = 0.7
BYTES = tokenizer_lib.Bytes()
END = BYTES.boundary
PAIRS = (
  ('the gate', 'opens', 'is a key of a sort'),
  ('a', 'state', 'x'),
  ('reads', 'writes', 'no'),
)


def raw_config(framing='turns'):
  raw = tiny.raw_config('pairs.jsonl')
  raw.model.update(layers=1, width=8)
  raw.data.source = 'jsonl'
  raw.data.length = 64
  raw.task.name = 'dpo'
  raw.task.update(beta=BETA, framing=framing, reference='runs/base')
  return raw


def document(*texts):
  return json.dumps(texts, ensure_ascii=False)


def make_examples(framing, length, *pairs):
  config = config_lib.parse(raw_config(framing))
  options = base.Options(config.task, config.data, length, None)
  documents = corpora.in_memory(*(document(*pair) for pair in pairs))
  return examples.Pairs(documents, BYTES, options)


def sequence(framing, prompt, reply):
  """The ids of a prompt and a reply, and which of ids[1:] are predicted."""
  between = [END] if framing == 'turns' else []
  before = [END, *prompt.encode(), *between]
  after = [*reply.encode(), END]
  return before + after, [0] * (len(before) - 1) + [1] * len(after)


@pytest.mark.parametrize('framing', ('turns', 'text'))
def test_a_row_is_both_sequences(framing):
  prompt, chosen, rejected = PAIRS[0]
  (first, weights), (second, others) = (
    sequence(framing, prompt, reply) for reply in (chosen, rejected)
  )
  ids = make_examples(framing, 64, *PAIRS).read(0)
  assert np.maximum(ids, ~ids).tolist() == first + second[1:]
  assert (ids[1:] >= 0).tolist() == [x == 1 for x in weights + others]
  # The prompt loses its beginning, or the pair is left out.
  short = make_examples(framing, len(ids) - 5, PAIRS[0]).read(0)
  assert len(short) == len(ids) - 4
  plain = np.maximum(short, ~short).tolist()
  assert bytes(plain[1:7]).decode() == prompt[2:]
  least = len(ids) - 1 - 2 * (len(prompt) - 1)  # with one byte of the prompt
  for length in (least, least - 1):
    made = make_examples(framing, length, PAIRS[0])
    assert len(made.read(0)) == made.lengths[0]
    assert (made.lengths[0] > 0) == (length == least)


def program(bundle):
  """A function of (tokens, slopes Lx257): (logits Lx257, gradients)."""
  model = bundles.model(bundle)

  @jax.jit
  def run(params, tokens, slopes):
    state = model.apply({}, 1, method='init_state')
    logits, back = jax.vjp(
      lambda p: model.apply({'params': p}, state, tokens)[1], params
    )
    return logits, back(slopes)[0]

  def pad(x, dtype):  # at the end: one program for all lengths
    out = np.zeros((1, 40, *np.shape(x)[1:]), dtype)
    out[0, : len(x)] = x
    return out

  def one(tokens, slopes):
    out, gradients = run(
      bundle.params, pad(tokens, np.int32), pad(slopes, np.float32)
    )
    return np.float64(out)[0, : len(tokens)], gradients

  return one


def log_probabilities(run, ids, weights):
  """(log p in float64 of the counted ids of a sequence, p of all)."""
  z, _ = run(ids[:-1], np.zeros((1, 257)))
  logp = scipy.special.log_softmax(z, -1)
  total = np.sum(logp[np.arange(len(weights)), ids[1:]] * weights)
  return total, np.exp(logp)


def packed():
  """Rows of one pair and of two."""
  made = make_examples('turns', 64, *PAIRS)
  batch = rows_lib.blank(2, 80)
  end = rows_lib.write(batch, 0, 0, made.read(1))
  rows_lib.write(batch, 0, end, made.read(2))
  rows_lib.write(batch, 1, 3, made.read(0))
  batch.starts_BxL[[0, 0, 1], [0, end, 3]] = 1
  return jax.tree.map(jnp.array, batch)


@pytest.mark.slow
def test_loss_and_gradient_of_pairs_in_packed_rows(tmp_path):
  raw = raw_config()
  reference = bundles.make(tiny.raw_config('x'), BYTES, seed=1)
  bundle_lib.write(reference, tmp_path / 'base')
  raw.task.reference = str(tmp_path / 'base')
  bundle = bundles.make(raw, BYTES, seed=2)
  task = dpo.make(bundle.config, BYTES).opened()
  batch = packed()

  def objective(params):
    objective, (sums, _) = task.loss(
      params, task.init_state(2), batch, jax.random.key(0)
    )
    return objective, sums

  run = jax.jit(jax.value_and_grad(objective, has_aux=True))
  (got, sums), gradients = run(bundle.params)
  ours, theirs = program(bundle), program(reference)

  loss, hits, rewards, total = 0, 0, np.zeros(2), None
  for prompt, *replies in PAIRS:
    both = [sequence('turns', prompt, reply) for reply in replies]
    own, other = (
      [log_probabilities(run, *x) for x in both] for run in (ours, theirs)
    )
    gains = [a - b for (a, _), (b, _) in zip(own, other, strict=True)]
    margin = BETA * (gains[0] - gains[1])
    loss += np.log1p(np.exp(-margin))
    hits += margin > 0
    rewards += BETA * np.array(gains)
    for sign, (_, p), (ids, weights) in zip((1, -1), own, both, strict=True):
      rise = (np.eye(257)[ids[1:]] - p) * np.array(weights)[:, None]
      slope = -sign * BETA * scipy.special.expit(-margin) * rise
      _, part = ours(ids[:-1], slope)
      total = part if total is None else jax.tree.map(np.add, total, part)
  np.testing.assert_allclose(got, loss, rtol=1e-5)
  np.testing.assert_allclose(sums['loss'], loss, rtol=1e-5)
  assert (sums['weight'], sums['hits']) == (3, hits)
  np.testing.assert_allclose(
    [sums['chosen'], sums['rejected']], rewards, rtol=1e-4
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5),
    gradients,
    total,
  )
  summary = task.summarize({name: float(x) for name, x in sums.items()})
  np.testing.assert_allclose(
    summary['margin'], (rewards[0] - rewards[1]) / 3, rtol=1e-4
  )


def write_pairs(folder):
  rows = [
    {'prompt': f'{n} {word}', 'chosen': f'{word}.', 'rejected': 'zz'}
    for n in range(4)
    for word in ('gate', 'key', 'state\nand', 'a')
  ]
  rows += [{'prompt': 'too', 'chosen': 'long' * 16, 'rejected': 'zz'}] * 4
  path = folder / 'pairs.jsonl'
  path.write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
  return str(path)


def write_runs(folder, *names):
  """The config of a run with adapters on pairs, and runs to begin with."""
  raw = tiny.raw_config('gone')
  raw.model.layers = 1
  reference = bundles.make(raw, BYTES)
  for name in names:
    bundle_lib.write(reference, folder / name)
  raw.task.name = 'dpo'
  raw.data.source = 'jsonl'
  raw.data.path = write_pairs(folder)
  raw.data.length = 64
  raw.data.boundaries = (64,)
  raw.task.beta = 0.5
  raw.train.steps = 20
  raw.adapters.rank = 2
  raw.optimizer.learning_rate = 0.05
  raw.evaluate.every = 10
  return raw


def train(raw, folder):
  """What training returns, of a run that begins with `base`."""
  init = origin.Init(str(folder.parent / 'base'), 'latest')
  start = loop.Start(init=init)
  with shared.programs():
    return loop.train(config_lib.parse(raw), str(folder), start=start)


def scores(folder):
  return evaluate.evaluate_run(evaluate.Run.open(str(folder)), 'validation')


def margins_of(folder):
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  reports = map(json.loads, lines)
  return [row['margin'] for row in reports if 'margin' in row]


@pytest.mark.slow
def test_a_run_prefers_what_was_chosen(tmp_path, capsys):
  """Its adapters change its model, and not the reference."""
  raw = write_runs(tmp_path, 'base', 'reference')
  raw.task.reference = str(tmp_path / 'reference')
  run = tmp_path / 'run'
  done, row = train(raw, run), scores(run)
  assert done.finished == 'all steps' and done.skipped_steps == 0
  said = r', \d of 1\d examples are left out: they need a longer data.l'
  assert re.search(said, capsys.readouterr().out)
  saved = json.loads((run / 'config.json').read_text())
  assert saved['data']['field'] == 'prompt,chosen,rejected'
  margins = margins_of(run)
  assert margins[-1] > margins[0]
  assert row['accuracy'] == 1 and row['loss'] < np.log(2)
  with pytest.raises(errors.InputError, match='--input=.*data.test_path'):
    evaluate.Run.open_on(str(run), raw.data.path)
  shutil.rmtree(tmp_path / 'reference')  # only training and evaluation read it
  bundle = bundle_lib.read(str(run), 'best')
  good, bad = score.Scorer(bundle).score(['1 key\nkey.', '1 key\nzz'])
  assert good.logprob > bad.logprob and good.token_count == 5
  assert generate.Generator.from_bundle(bundle).prompts.asks


@pytest.mark.slow
def test_what_adapters_change_is_the_reference(tmp_path):
  raw = write_runs(tmp_path, 'base')
  raw.train.steps = 10
  raw.evaluate.every = 0
  raw.adapters.dropout = 0.2
  margins = {}
  for name, held, reference in (
    ('named', 'float32', str(tmp_path / 'base')),
    ('itself', 'float32', ''),
    ('rounded', 'int8', ''),
  ):
    raw.task.reference, raw.adapters.base = reference, held
    train(raw, tmp_path / name)
    margins[name] = np.array(margins_of(tmp_path / name))
  assert margins['named'][-1] > 0.1
  np.testing.assert_allclose(
    margins['itself'], margins['named'], rtol=1e-3, atol=1e-5
  )
  np.testing.assert_allclose(margins['rounded'], margins['named'], rtol=0.2)
  again, named = (scores(tmp_path / name) for name in ('itself', 'named'))
  assert again['margin'] == pytest.approx(named['margin'], rel=1e-3)
  raw.adapters.trained = ('norm/.*',)
  with pytest.raises(errors.InputError, match='adapters.trained.*reference wo'):
    config_lib.parse(raw)


def test_a_reference_is_needed_and_must_fit(tmp_path):
  raw = raw_config()
  raw.task.reference = ''
  config = config_lib.parse(raw)
  with pytest.raises(
    errors.InputError, match="task.reference='': name the run .* or give adap"
  ):
    dpo.make(config, BYTES).opened()
  raw.task.reference = str(tmp_path / 'absent')
  with pytest.raises(
    errors.InputError, match='task.reference=.*no such folder'
  ):
    dpo.make(config_lib.parse(raw), BYTES).opened()
  bundle_lib.write(bundles.make(raw_config()), tmp_path / 'numbers')
  raw.task.reference = str(tmp_path / 'numbers')
  with pytest.raises(errors.InputError, match='vocabulary, of 21 entries'):
    dpo.make(config_lib.parse(raw), BYTES).opened()


@pytest.mark.parametrize(
  ('key', 'value'),
  (
    ('task.beta', 0.0),
    ('task.framing', 'pairs'),
    ('remat.segment', 8),
    ('train.z_loss', 0.1),
  ),
)
def test_options_that_do_not_fit_are_refused(key, value):
  raw = raw_config()
  raw.update_from_flattened_dict({key: value})
  with pytest.raises(errors.InputError, match=f'{key}={value!r}'):
    config_lib.parse(raw)


@pytest.mark.parametrize(
  ('row', 'message'),
  (
    (
      {'prompt': 'a', 'chosen': 'b'},
      r":2: no column 'rejected': name one of \['pro",
    ),
    ({'prompt': 'a', 'chosen': 'b', 'rejected': ['c']}, "'rejected' is list"),
    ({'prompt': 'a', 'chosen': ' ', 'rejected': 'c'}, "'chosen' is empty"),
  ),
)
def test_rows_without_a_pair_are_named(row, message, tmp_path):
  whole = {'prompt': 'a', 'chosen': 'b', 'rejected': 'c'}
  path = tmp_path / 'pairs.jsonl'
  path.write_text(f'{json.dumps(whole)}\n{json.dumps(row)}\n')
  raw = raw_config()
  raw.data.path = str(path)
  with pytest.raises(errors.InputError, match=message):
    loop.train(config_lib.parse(raw), str(tmp_path / 'run'))


def test_documents_that_are_no_pairs_are_named():
  config = config_lib.parse(raw_config())
  for text in ('plain text', '["a", "b"]', '["a", "b", 3]'):
    split = corpora.in_memory(document('a', 'b', 'c'), text)
    with pytest.raises(errors.InputError, match='1: not a prompt with two rep'):
      examples.check({'train': split}, config)
