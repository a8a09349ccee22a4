"""Token files change no batch, and a later start reads nothing else."""

import contextlib
import functools
import json
import os

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import identity
from rnn_jax.data import pipeline
from rnn_jax.data import workers
from rnn_jax.data.sources import jsonl
from rnn_jax.data.store import folder as folder_lib
from rnn_jax.data.store import sealed
from rnn_jax.data.store import texts
from rnn_jax.data.store import tokens
from rnn_jax.data.tables import indexed
from rnn_jax.data.text import tokenizer as tokenizer_lib
from tests.support import chats
from tests.support import corpora

PIECES = ('word', 'más', 'its', "it's", '1234', '...', 'x' * 90, '日本語', '!')
SPACES = (' ', ' ', ' ', '  ', '\n', '\n\n ', '\t', '\u00a0', '\u3000 ', '')
BPE = {'tokenizer': 'bpe', 'vocabulary': 300}
TOKENIZERS = {
  'bytes': {'tokenizer': 'bytes'},
  'characters': {'tokenizer': 'characters'},
  'bpe': BPE,
  'words': BPE | {'vocabulary': 60, 'pre_tokenizer': 'whitespace'},
}
MADE = 24  # batches of training that are compared
TASKS = {
  'language_modeling': {},
  'classification': {'classes': ('a', 'b', 'c')},
  'dialogue': {'field': 'turns'},
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
  """Makes every part small."""
  monkeypatch.setattr(texts, 'PART', 300)
  monkeypatch.setattr(texts, 'MAX_DOCUMENTS', 7)
  monkeypatch.setattr(tokens, 'PART', 200)
  monkeypatch.setattr(tokens, 'NEAR', 40)


def text_of(rng, sizes=(1, 5, 20, 200)):
  words = (str(rng.choice(PIECES)) for _ in range(rng.choice(sizes)))
  return ''.join(word + str(rng.choice(SPACES)) for word in words)


@pytest.fixture
def path(tmp_path):
  """A JSONL of texts, of which some are long."""
  rng = np.random.default_rng(0)
  with (tmp_path / 'a.jsonl').open('w') as file:
    for n in range(30):
      row = {
        'text': text_of(rng),
        'turns': [f'a {text_of(rng, (1, 9))}' for _ in range(2 + n % 3)],
        'label': 'abc'[n % 3],
      }
      file.write(json.dumps(row) + '\n')
  return tmp_path / 'a.jsonl'


def open_corpus(path, workdir, task='language_modeling', **data):
  options = {
    'source': 'jsonl',
    'path': str(path),
    'field': 'text',
    'splits': (70, 20, 10),
    'length': 16,
    'batch_size': 4,
    'workers': 0,
    'cache': '',
    **data,
  }
  raw = config_lib.default(task=task)
  raw.data.update(options)
  cfg = config_lib.parse(raw)
  return corpus_lib.Corpus.open(cfg, workdir), cfg


def batches(corpus, cfg, own=None):
  """Returns batches of training, and those of a held-out pass."""
  training = pipeline.training_batches(corpus, cfg, own=own)
  held_out = pipeline.heldout_batches(corpus, cfg, 'validation')
  return [*corpora.take(training, MADE), *held_out]


def refuse(*arguments):
  raise AssertionError('a later start reads token files only')


@pytest.mark.parametrize(
  ('task', 'layout', 'kind'),
  (
    ('language_modeling', 'stream', 'bytes'),
    ('language_modeling', 'stream', 'bpe'),
    ('language_modeling', 'stream', 'words'),
    ('language_modeling', 'buckets', 'characters'),
    ('language_modeling', 'packed', 'bpe'),
    ('classification', 'sorted', 'bpe'),
    ('dialogue', 'padded', 'bpe'),
    ('dialogue', 'buckets', 'words'),
  ),
)
def test_batches_are_those_without_files(
  path, tmp_path, task, layout, kind, monkeypatch
):
  data = {**TOKENIZERS[kind], **TASKS[task], 'layout': layout}
  if layout == 'stream':
    data['segment_tokens'] = 200
  if task != 'language_modeling':
    data['length'] = 64
  plain, cfg = open_corpus(path, tmp_path / 'run', task, **data)
  expected = batches(plain, cfg)
  identity.write(plain.digests, tmp_path / 'run')
  data['cache'] = str(tmp_path / 'cache')
  first, cfg = open_corpus(path, tmp_path / 'run', task, **data)
  monkeypatch.setattr(jsonl, 'load', refuse)
  if task == 'language_modeling':  # others encode the names of classes
    for part in (tokenizer_lib.BytePairs, tokenizer_lib.Characters):
      monkeypatch.setattr(part, 'encode_document', refuse)
  monkeypatch.setattr(tokenizer_lib.BytePairs, 'encode_documents', refuse)
  later, _ = open_corpus(path, tmp_path / 'run', task, **data)
  for corpus in (first, later):
    assert corpus.digests == plain.digests
    corpora.assert_same(batches(corpus, cfg), expected)
    for split, documents in corpus.documents.items():
      before = plain.documents[split]
      assert documents.names == before.names
      np.testing.assert_array_equal(documents.sizes, before.sizes)
      if before.labels is not None:
        np.testing.assert_array_equal(documents.labels, before.labels)
  # A job of two processes: each makes the rows of its devices.
  for half in (0, 1):
    own = batches(
      later,
      cfg,
      lambda rows, half=half: (np.arange(rows) < rows / 2) == (half == 0),
    )
    for batch, whole in zip(own[:MADE], expected[:MADE], strict=True):
      middle = len(whole.tokens_BxL) // 2
      rows = slice(middle) if half == 0 else slice(middle, None)
      corpora.assert_same(
        [type(batch)(*(x[rows] for x in batch[:4]))],
        [type(whole)(*(x[rows] for x in whole[:4]))],
      )


@pytest.mark.parametrize('task', ('dialogue', 'dpo'))
def test_parts_of_a_chat_template_come_from_the_files(
  path, tmp_path, task, monkeypatch
):
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  names = 'prompt', 'chosen', 'rejected'
  for row in rows:
    row |= dict(zip(names, [*row['turns'], 'no'], strict=False))
  path.write_text('\n'.join(map(json.dumps, rows)))
  (tmp_path / 'run').mkdir()
  made = chats.make(chats.CHATML)
  made.save(tmp_path / 'run' / 'tokenizer.json')
  field = 'turns' if task == 'dialogue' else ','.join(names)
  data = {'field': field, 'length': 128, 'layout': 'buckets'}
  data |= {'tokenizer': 'pretrained', 'vocabulary': chats.SIZE}
  plain, cfg = open_corpus(path, tmp_path / 'run', task, **data)
  expected = batches(plain, cfg)
  assert sum(int(batch.weights_BxL.sum()) for batch in expected) > 1000
  data['cache'] = str(tmp_path / 'cache')
  open_corpus(path, tmp_path / 'run', task, **data)
  monkeypatch.setattr(tokenizer_lib.Pretrained, 'encode_rendered', refuse)
  later, _ = open_corpus(path, tmp_path / 'run', task, **data)
  corpora.assert_same(batches(later, cfg), expected)


def test_rows_of_other_processes_are_not_made(path, tmp_path, monkeypatch):
  corpus, cfg = open_corpus(
    path,
    tmp_path / 'run',
    'classification',
    cache=str(tmp_path / 'cache'),
    **BPE,
    **TASKS['classification'],
  )
  read = []
  examples = type(corpus.examples(cfg.data, 'train', 0))
  whole = examples.read
  monkeypatch.setattr(examples, 'read', lambda *a: read.append(a) or whole(*a))
  training = pipeline.training_batches(
    corpus, cfg, own=lambda rows: np.arange(rows) == 0
  )
  before = len(read)  # those of the sample that bucket lengths come from
  rows = sum(len(batch.tokens_BxL) for batch in corpora.take(training, 20))
  assert 0 < len(read) - before < rows / 2


@pytest.mark.parametrize('change', ('content', 'time', 'option', 'size'))
def test_other_data_have_other_files(path, tmp_path, change):
  cache = tmp_path / 'cache'
  open_corpus(path, tmp_path / 'run', cache=str(cache))
  state, options = os.stat(path), {}
  if change == 'content':
    path.write_text(path.read_text().replace('word', 'Word'))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
  elif change == 'time':
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
  elif change == 'option':
    options = {'splits': (80, 10, 10)}
  else:
    path.write_text(path.read_text() + json.dumps({'text': 'more'}))
  open_corpus(path, tmp_path / 'other', cache=str(cache), **options)
  assert len([p for p in cache.iterdir() if p.is_dir()]) == 2


def test_moved_data_have_the_same_files(path, tmp_path):
  cache = tmp_path / 'cache'
  open_corpus(path, tmp_path / 'run', cache=str(cache))
  (tmp_path / 'elsewhere').mkdir()
  moved = path.rename(tmp_path / 'elsewhere' / path.name)
  open_corpus(moved, tmp_path / 'run', cache=str(cache))
  assert len([p for p in cache.iterdir() if p.is_dir()]) == 1


def test_damaged_files_are_written_again(path, tmp_path):
  cache = tmp_path / 'cache'
  open_path = functools.partial(
    open_corpus, path, tmp_path / 'run', cache=str(cache), **BPE
  )
  corpus, cfg = open_path()
  expected = batches(corpus, cfg)
  for name in ('*/train.text', '*/ids-*/train.ids', '*/index.json'):
    (file,) = cache.glob(name)
    file.write_bytes(file.read_bytes()[:-1])
    corpora.assert_same(batches(*open_path()), expected)
    assert not [p for p in cache.rglob('building-*')]


def test_other_data_under_a_run_are_refused(path, tmp_path):
  cache = str(tmp_path / 'cache')
  corpus, _ = open_corpus(path, tmp_path / 'run', cache=cache)
  identity.write(corpus.digests, tmp_path / 'run')
  path.write_text(path.read_text().replace('word', 'Word'))
  with pytest.raises(errors.InputError, match='content: .*--accept_new_data'):
    open_corpus(path, tmp_path / 'run', cache=cache)


def test_little_data_leave_no_file(path, tmp_path, monkeypatch):
  monkeypatch.setenv('RNN_JAX_CACHE', str(tmp_path / 'home'))
  open_corpus(path, tmp_path / 'run', cache='auto')
  assert not (tmp_path / 'home').exists()
  monkeypatch.setattr(folder_lib, 'MIN_BYTES', 100)
  open_corpus(path, tmp_path / 'run', cache='auto')
  assert [p for p in (tmp_path / 'home/tokens').iterdir() if p.is_dir()]


def test_columns_are_looked_for_once(path, tmp_path, monkeypatch):
  options = {'cache': str(tmp_path / 'cache'), 'field': ''}
  raw = config_lib.default(task='classification')
  raw.data.update({'source': 'jsonl', 'path': str(path), **options})
  resolved = columns.resolve(config_lib.parse(raw)).data
  assert resolved.classes == ('a', 'b', 'c') and resolved.field == 'text'
  monkeypatch.setattr(indexed, 'look', refuse)
  assert columns.resolve(config_lib.parse(raw)).data == resolved


def test_a_full_disk_costs_only_the_files(path, tmp_path, monkeypatch, caplog):
  def full(*arguments):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(texts, '_write', full)
  cache = str(tmp_path / 'cache')
  corpus, cfg = open_corpus(path, tmp_path / 'run', cache=cache)
  assert len(corpora.take(pipeline.training_batches(corpus, cfg), 3)) == 3
  assert 'No space left' in caplog.text and 'data.cache' in caplog.text


def test_a_folder_that_cannot_be_made_is_refused(path, tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.InputError, match='data.cache=.*name another'):
    open_corpus(path, tmp_path / 'run', cache=str(tmp_path / 'file/cache'))


@pytest.mark.slow
def test_processes_write_the_same_files(path, tmp_path, monkeypatch):
  open_corpus(path, tmp_path / 'run', cache=str(tmp_path / 'plain'), **BPE)
  monkeypatch.setattr(os, 'sched_getaffinity', lambda _: {0, 1})
  monkeypatch.setattr(indexed, 'PART', 1000)
  monkeypatch.setattr(indexed, 'WORTH_IT', 5000)
  monkeypatch.setattr(texts, 'PART', 2000)
  monkeypatch.setattr(tokens, 'PART', 4000)
  monkeypatch.setattr(texts, 'WORTH_IT', 5000)
  monkeypatch.setattr(tokens, 'WORTH_IT', 5000)
  shared, used = workers.Pool(2), []  # each of three steps would start its own
  monkeypatch.setattr(
    workers,
    'Pool',
    lambda count: used.append(count) or contextlib.nullcontext(shared),
  )
  with shared:
    open_corpus(path, tmp_path / 'run', cache=str(tmp_path / 'parallel'), **BPE)
  assert len(used) >= 3 and {*used} == {2}
  plain, parallel = (
    {
      str(file.relative_to(tmp_path / name)): file.read_bytes()
      for file in (tmp_path / name).rglob('*.*')
      if file.suffix in ('.text', '.ends', '.names', '.name_ends', '.ids')
    }
    for name in ('plain', 'parallel')
  )
  assert len(plain) == 3 * (4 + 2)  # of each split: the text's and the ids'
  assert plain == parallel


KINDS = {  # of damage, by name
  'a flipped bit': lambda content: bytes([content[0] ^ 1]) + content[1:],
  'zeros': lambda content: bytes(len(content)),
  'cut': lambda content: content[:-1],
}


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
def test_damage_of_any_file_never_changes_a_batch(
  path, tmp_path, monkeypatch, kind
):
  monkeypatch.setitem(globals(), 'MADE', 4)
  path.write_text(''.join(path.read_text().splitlines(True)[:10]))
  open_path = functools.partial(
    open_corpus, path, tmp_path / 'run', cache=str(tmp_path / 'cache'), **BPE
  )
  expected = batches(*open_path())
  (folder,) = (p for p in (tmp_path / 'cache').iterdir() if p.is_dir())
  damaged = found = 0
  names = [p.relative_to(folder) for p in folder.rglob('*') if p.is_file()]
  # Facts first: they go with the files that they are about.
  for name in sorted(names, key=lambda name: 'fact' not in str(name)):
    content = (folder / name).read_bytes()
    if not any(content):  # zeros, or nothing
      continue
    (folder / name).write_bytes(KINDS[kind](content))
    damaged += 1
    try:
      made = batches(*open_path())
    except sealed.DamagedError as error:
      assert f'{name}: ' in str(error) and 'start again' in str(error)
      found += 1
      made = batches(*open_path())
    corpora.assert_same(made, expected)
  assert damaged > 20 and found < damaged
  assert bool(found) == (kind != 'cut')


def test_verify_writes_damaged_files_again(path, tmp_path, capsys, caplog):
  def open_path():
    raw = config_lib.default()
    raw.data.update(
      {'source': 'jsonl', 'path': str(path), 'cache': str(tmp_path / 'cache')}
    )
    cfg = config_lib.parse(raw)
    return corpus_lib.Corpus.open(cfg, tmp_path / 'run', verify=True), cfg

  open_path()
  assert 'as they were written' in capsys.readouterr().err
  (text,) = tmp_path.glob('cache/*/train.text')
  before = text.read_bytes()
  text.write_bytes(bytes(len(before)))
  corpus, _ = open_path()
  assert 'train.text: bytes 0 to' in caplog.text
  assert 'written again' in caplog.text
  assert b''.join(map(corpus.documents['train'].read, range(3))) in before


def test_token_files_of_another_user_are_refused(path, tmp_path):
  open_corpus(path, tmp_path / 'run', cache=str(tmp_path / 'cache'))
  (folder,) = (p for p in (tmp_path / 'cache').iterdir() if p.is_dir())
  folder.chmod(0o777)
  with pytest.raises(errors.InputError, match='another user.*data.cache'):
    open_corpus(path, tmp_path / 'run', cache=str(tmp_path / 'cache'))
