"""A run as a model of lm-eval: the numbers of the scorer and the generator."""

import json
import math
import socket
import sys

import numpy as np
import pytest

import rnn_jax
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import evaluation
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_training
from rnn_jax.inference import chunks
from rnn_jax.inference import model as model_lib
from tests.inference import runs
from tests.inference import test_score
from tests.support import corpora
from tests.support import launchers

TEXT = 'The café reads the gate, twice. ' * 3
TASKS = {
  'choice': """
output_type: multiple_choice
doc_to_choice: choices
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
  'rolling': """
output_type: loglikelihood_rolling
doc_to_target: "{{text}}"
metric_list:
  - {metric: byte_perplexity, aggregation: weighted_perplexity,
     higher_is_better: false}
""",
  'writes': """
output_type: generate_until
doc_to_target: "{{text}}"
generation_kwargs: {until: ["e"], max_gen_toks: 12}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}
DOCUMENTS = [
  {
    'question': f'{n} and one are',
    'choices': ['two', 'one more', 'far more than anyone would count ' * 2],
    'gold': n % 3,
    'text': f'The gate is number {n}.' * n,
  }
  for n in range(1, 4)
]


def wrapped(**options):
  from rnn_jax.evaluation import lm_eval

  own = model_lib.Model(test_score.make(**options))
  return own, lm_eval.Model(own, batch_size=4)


def ask(kind, *arguments):
  from lm_eval.api import instance

  return [
    instance.Instance(kind, {}, each, n) for n, each in enumerate(arguments)
  ]


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch):
  """A text has several chunks."""
  monkeypatch.setattr(chunks, 'LENGTHS', (8, 32))


def summed(score, begin, end):
  return np.sum(score.values.logprob_L[begin:end], dtype=np.float64)


@pytest.mark.peers
def test_log_likelihoods_are_sums_of_the_scores():
  own, model = wrapped()
  whole = own.score([TEXT])[0]
  size = len(TEXT.encode())
  places = 3, 50, 0, 94, 7, size  # of continuations, in another order
  pairs = [
    (TEXT.encode()[:at].decode(), TEXT.encode()[at:].decode()) for at in places
  ]
  pairs.append(('The gate', ''))
  got = model.loglikelihood(ask('loglikelihood', *pairs))
  wanted = [summed(whole, at, size) for at in places]
  np.testing.assert_allclose([x for x, _ in got[:-1]], wanted, rtol=3e-6)
  assert got[-1] == (0, True) and not any(greedy for _, greedy in got[:4])
  texts = ('gate',), (TEXT,), ('',)
  rolling = model.loglikelihood_rolling(ask('loglikelihood_rolling', *texts))
  gate = own.score(['gate'])[0]
  wanted = [summed(gate, 0, 4), summed(whole, 0, size), 0]
  np.testing.assert_allclose(rolling, wanted, rtol=3e-6)


@pytest.mark.peers
def test_what_greedy_decoding_writes_is_greedy():
  letters = ''.join(sorted('The gatwic'))
  own, model = wrapped(tokenizer=tokenizer_lib.Characters(letters))
  (written,) = own.generate('The gate', temperature=0, max_new_tokens=3)
  assert written.reason == 'length'
  last = letters[letters.index(written.text[-1]) - 1]
  other = written.text[:-1] + last
  first, second = model.loglikelihood(
    ask('loglikelihood', ('The gate', written.text), ('The gate', other))
  )
  assert first[1] and not second[1]
  np.testing.assert_allclose(first[0], written.logprob, rtol=1e-5)


@pytest.mark.peers
def test_the_tokens_of_a_continuation_begin_where_the_texts_differ():
  raw = config_lib.default()
  raw.data.update(tokenizer='bpe', vocabulary=260)
  documents = corpora.in_memory('gates gates gates', 'gates')
  pairs = tokenizer_training.train(config_lib.parse(raw).data, documents)
  own, model = wrapped(tokenizer=pairs)
  ids = model._ids('2 ga', 'tes')
  assert model._common(ids, '2 ga') < len(model._ids('2 ga'))
  ((got, _),) = model.loglikelihood(ask('loglikelihood', ('2 ga', 'tes')))
  common = model._common(ids, '2 ga') - 1
  wanted = summed(own.score(['2 gates'])[0], common, len(ids) - 1)
  np.testing.assert_allclose(got, wanted, rtol=3e-6)


@pytest.mark.peers
def test_a_reply_follows_a_turn():
  own, model = wrapped(task='dialogue')
  ((got, _),) = model.loglikelihood(ask('loglikelihood', ('Hello.', 'Hi you!')))
  score = own.score(['Hello.\nHi you!'])[0]
  np.testing.assert_allclose(got, summed(score, 7, 14), rtol=3e-6)
  request = ask('generate_until', ('Hello.', {'max_gen_toks': 5}))
  (wanted,) = own.generate('Hello.', temperature=0, max_new_tokens=5)
  assert model.generate_until(request) == [wanted.text]


@pytest.mark.peers
def test_texts_are_those_of_generate():
  own, model = wrapped()
  contexts = 'The gate', TEXT, '', 'def main('
  options = {'until': ['e', 't'], 'max_gen_toks': 9}
  given = [(context, options) for context in contexts]
  got = model.generate_until(ask('generate_until', *given))
  wanted = own.generate(
    contexts, temperature=0, max_new_tokens=9, stop=('e', 't')
  )
  assert got == [x.text for x in wanted]
  drawn = {'until': 'e', 'max_new_tokens': 9, 'do_sample': True, 'top_k': 5}
  given = ask('generate_until', ('def', drawn | {'temperature': 0.7}))
  wanted = own.generate(
    'def', temperature=0.7, top_k=5, max_new_tokens=9, stop='e'
  )
  assert model.generate_until(given) == [wanted[0].text]
  with pytest.raises(errors.InputError, match=r"\['num_beams'\] are not supp"):
    model.generate_until(ask('generate_until', ('def', {'num_beams': 2})))


@pytest.mark.peers
def test_learned_positions_see_the_last_tokens_that_fit():
  own, model = wrapped(positions='learned', max_positions=128)
  text = 'the gate reads ' * 20
  ids = np.array([256, *text.encode()])
  ((got, _),) = model.loglikelihood(
    ask('loglikelihood', (text[:-5], text[-5:]))
  )
  last = own.scorer.values(ids[-129:]).logprob_L
  np.testing.assert_allclose(got, np.sum(last[-5:]), rtol=3e-6)
  (rolling,) = model.loglikelihood_rolling(ask('rolling', (text,)))
  wanted = [
    own.scorer.values(ids[at : at + 129]).logprob_L.sum()
    for at in range(0, len(ids) - 1, 128)
  ]
  assert len(wanted) == 3
  np.testing.assert_allclose(rolling, sum(wanted), rtol=3e-6)
  with pytest.raises(errors.InputError, match='of 200 tokens: .* for 128'):
    model.loglikelihood(ask('loglikelihood', ('a', 'b' * 200)))
  request = ask('generate_until', (text, {'max_gen_toks': 6}))
  (wanted,) = own.generator.generate(
    [ids[-123:]], model._options({'max_gen_toks': 6})
  ).completions
  assert model.generate_until(request) == [wanted.text]


@pytest.mark.peers
def test_tasks_of_a_folder_run_offline(tmp_path, monkeypatch):
  def refuse(*_, **__):
    raise OSError('no network in this test')

  monkeypatch.setattr(socket.socket, 'connect', refuse)
  monkeypatch.setenv('HF_DATASETS_CACHE', str(tmp_path / 'cache'))
  rows = tmp_path / 'rows.jsonl'
  rows.write_text(''.join(f'{json.dumps(each)}\n' for each in DOCUMENTS))
  for name, task in TASKS.items():
    (tmp_path / f'{name}.yaml').write_text(
      f'task: tiny_{name}\ntest_split: test\ndataset_path: json\n'
      f'dataset_kwargs: {{data_files: {{test: {rows}}}}}\n'
      f'doc_to_text: "{"" if name == "rolling" else "{{question}}"}"\n{task}'
    )
  run = runs.make(tmp_path / 'run', losses=(1.0,))
  arguments = f'--workdir={run}', f'--include_path={tmp_path}', '--samples'
  code, out, err = launchers.run('lm_eval', *arguments, '--tasks=tiny_*')
  assert code == 0, err
  lines = [line.strip('| ').split('|') for line in out.splitlines()[-3:]]
  scores = {cells[0].strip(): cells[2].strip() for cells in lines}
  folder = run / 'evaluation' / 'lm_eval'
  results = json.loads((folder / 'results.json').read_text())['results']
  own = rnn_jax.load(run)
  bits = own.score([each['text'] for each in DOCUMENTS])
  total = sum(summed(x, 0, x.byte_count) for x in bits)
  perplexity = math.exp(-total / sum(x.byte_count for x in bits))
  np.testing.assert_allclose(
    results['tiny_rolling']['byte_perplexity,none'], perplexity, rtol=1e-5
  )
  right = []
  for each in DOCUMENTS:
    likelihoods = [
      summed(score, len(each['question']), score.byte_count)
      for score in own.score(
        [f'{each["question"]} {choice}' for choice in each['choices']]
      )
    ]
    right.append(np.argmax(likelihoods) == each['gold'])
  assert results['tiny_choice']['acc,none'] == np.mean(right)
  assert scores['tiny_choice'] == f'{np.mean(right):.4f}'
  lines = (folder / 'samples_tiny_writes.jsonl').read_text().splitlines()
  written = own.generate(
    [each['question'] for each in DOCUMENTS],
    temperature=0,
    max_new_tokens=12,
    stop=('e',),
  )
  assert [json.loads(line)['resps'] for line in lines] == [
    [[x.text]] for x in written
  ]
  code, _, err = launchers.run('lm_eval', *arguments, '--tasks=tiny_absent')
  assert code == 1 and "tasks='tiny_absent': `lm-eval ls tasks`" in err


def test_a_missing_package_is_named(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'lm_eval', None)
  monkeypatch.delattr(evaluation, 'lm_eval', raising=False)
  monkeypatch.delitem(sys.modules, 'rnn_jax.evaluation.lm_eval', raising=False)
  code, _, err = launchers.run('lm_eval', f'--workdir={tmp_path}', '--tasks=x')
  assert code == 1 and "pip install 'rnn_jax[lm-eval]'" in err
