"""Corpora have the size that a case says, and their documents are real."""

import json

import pytest

from benchmarks.suites import corpus


@pytest.mark.parametrize('source', ('text', 'jsonl'))
def test_a_corpus_has_its_size(tmp_path, monkeypatch, source):
  monkeypatch.setattr(corpus, 'FILE', 5000)
  path, count = corpus.make(tmp_path / 'made', source, 40_000)
  if source == 'text':
    texts = [file.read_text() for file in path.parent.glob(path.name)]
  else:
    texts = [json.loads(line)['text'] for line in path.open()]
  length = {'text': 5000, 'jsonl': corpus.ROW}[source]
  assert len(texts) == count == -(-40_000 // length)
  assert {*map(len, texts)} == {length} and len({*texts}) == count
  assert any('import ' in text for text in texts)


def test_a_report_names_memory_and_waiting(tmp_path):
  class Plots:
    def lines(self, name, series, labels, scale):
      assert series == {'a': [(0.5, 1.0)]} and scale == 'linear'
      return f'{name} of {[*series]}'

  start = {
    'to_first_step': 3.0,
    'tokens_per_second': 5000,
    'waiting_share': 0.004,
    'resident_peak_bytes': 2**30,
    'resident_training_bytes': 2**30,
    'resident_over_time': [[0.0, 1], [0.5, 2**20]],
  }
  row = {
    f'{name}_{key}': value
    for name in ('first', 'second')
    for key, value in start.items()
  }
  row |= {
    'documents': 10,
    'cache_bytes': 2**20,
    'versions': {},
    'commit': 'c',
    'device': 'd',
    'cores': 2,
    'python': '3',
    'time': '2026-01-01T',
  }
  text = '\n'.join(corpus.report({'a': row}, Plots()))
  assert (
    '0.40 %' in text
    and '1,024 MiB' in text
    and "second_memory of ['a']" in text
  )
