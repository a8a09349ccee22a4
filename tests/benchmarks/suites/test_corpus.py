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


def test_batches_are_read_and_a_run_resumes_on_repeated_texts():
  by_name = {case.name: case for case in corpus.cases(quick=True)}
  resumed = by_name['resume: 0.01 GB, documents of 1,500 bytes']
  values = corpus.resume(**resumed.parameters | {'size': 0.001})
  assert values['documents'] == 600  # 90 % of 666 whole documents
  read = by_name['pipeline: stream']
  assert corpus.read(1, **read.parameters | {'count': 2})['mean'] > 0
