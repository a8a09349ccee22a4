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
