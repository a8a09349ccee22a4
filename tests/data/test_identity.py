"""A run resumes, and is evaluated, on the data that it began with."""

import json
import os

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import identity
from rnn_jax.data.sources import text
from rnn_jax.data.tables import lines
from rnn_jax.data.text import documents as documents_lib
from tests.support import tiny


@pytest.fixture
def folder(tmp_path):
  tiny.write_text(tmp_path / 'text')
  return tmp_path / 'text'


@pytest.fixture
def config(folder):
  return config_lib.parse(tiny.raw_config(f'{folder}/*.txt'))


def open_and_write(config, workdir, accept_new_data=False):
  corpus = corpus_lib.Corpus.open(config, workdir, accept_new_data)
  identity.write(corpus.digests, workdir)
  return corpus.digests


def same_size(file):
  file.write_bytes(bytes(reversed(file.read_bytes())))


def shorter(file):
  file.write_bytes(file.read_bytes()[:-1])


def longer(file):
  file.write_bytes(file.read_bytes() + b'more')


def renamed(file):
  file.rename(file.with_name('another.txt'))


def gone(file):
  file.unlink()


@pytest.mark.parametrize(
  ('change', 'named'),
  (
    (same_size, 'content'),
    (shorter, 'bytes'),
    (longer, 'bytes'),
    (renamed, 'names'),
    (gone, 'documents'),
  ),
)
def test_other_data_are_refused_and_named(
  change, named, folder, config, tmp_path, caplog
):
  workdir = tmp_path / 'run'
  before = open_and_write(config, workdir)
  assert open_and_write(config, workdir) == before
  change(sorted(folder.glob('*.txt'))[0])
  with pytest.raises(
    errors.InputError, match=rf'{named}: .* -> .*--accept_new_data'
  ):
    corpus_lib.Corpus.open(config, workdir)
  after = open_and_write(config, workdir, accept_new_data=True)
  assert after != before and 'the data are not those of' in caplog.text
  corpus_lib.Corpus.open(config, workdir)  # they are the run's now


def test_a_large_split_is_sampled_over_its_whole_length(tmp_path, monkeypatch):
  monkeypatch.setattr(identity, 'WHOLE', 1000)
  monkeypatch.setattr(identity, 'SAMPLES', 10)
  monkeypatch.setattr(identity, 'BLOCK', 20)
  paths = [tmp_path / name for name in 'ab']
  for path in paths:
    path.write_bytes(b'x' * 1000)

  def content():
    reader = text.Files([str(p) for p in paths], str(tmp_path))
    documents = documents_lib.whole(reader)
    return identity._of_split(documents)['content']

  before = content()
  for path, at, noticed in ((1, 819, True), (0, 0, True), (0, 150, False)):
    kept = paths[path].read_bytes()
    paths[path].write_bytes(kept[:at] + b'y' + kept[at + 1 :])
    assert (content() != before) == noticed
    paths[path].write_bytes(kept)


@pytest.mark.parametrize('content', ('', '[]', '{"train": 3}', '[' * 10**5))
def test_a_damaged_record_is_one_line(content, config, tmp_path):
  workdir = tmp_path / 'run'
  open_and_write(config, workdir)
  (workdir / identity.NAME).write_text(content)
  with pytest.raises(errors.InputError, match='data.json is damaged'):
    corpus_lib.Corpus.open(config, workdir)


def test_links_do_not_multiply_files(folder):
  (folder / 'loop').symlink_to(folder)
  files = lines.match(f'{folder}/**/*.txt', 'data.path')
  assert files == sorted(str(path) for path in folder.glob('*.txt'))


def test_copies_of_the_training_files_are_not_held_out(folder, tmp_path):
  copy = tmp_path / 'copy.txt'
  copy.write_bytes(sorted(folder.glob('*.txt'))[0].read_bytes())
  raw = tiny.raw_config(f'{folder}/*.txt')
  raw.data.validation_path = str(copy)
  with pytest.raises(errors.InputError, match='validation_path=.*is a copy'):
    corpus_lib.Corpus.open(config_lib.parse(raw), tmp_path / 'run')
  copy.write_bytes(copy.read_bytes() + b'other')
  corpus_lib.Corpus.open(config_lib.parse(raw), tmp_path / 'run')


def test_the_record_is_json(config, tmp_path):
  open_and_write(config, tmp_path / 'run')
  record = json.loads((tmp_path / 'run' / identity.NAME).read_text())
  assert {*record} == {*documents_lib.SPLITS}
  assert record['train']['bytes'] > 0
  assert os.listdir(tmp_path / 'run') != []
