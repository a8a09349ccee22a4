"""Linear classifiers of texts: they learn what words say, and negation."""

import json

from benchmarks.suites import text_baselines


def _write(path, texts):
  lines = [json.dumps({'text': t, 'label': y}) + '\n' for t, y in texts]
  path.write_text(''.join(lines))


def test_pairs_of_words_tell_a_negation(tmp_path, monkeypatch):
  words = [f'word{n}' for n in range(20)]
  train = [(f'{w} good', 1) for w in words] + [(f'{w} bad', 0) for w in words]
  train += [(f'{w} not good', 0) for w in words]
  train += [(f'{w} not bad', 1) for w in words]
  held_out = [('it was not bad', 1), ('word3 bad', 0), ('plot not good', 0)]
  _write(tmp_path / 'train.jsonl', train)
  _write(tmp_path / 'held_out.jsonl', held_out)
  monkeypatch.setenv(
    'BENCHMARK_DATA',
    f'reviews={tmp_path}/train.jsonl:text,'
    f'held_out={tmp_path}/held_out.jsonl:text',
  )
  for model in ('naive_bayes', 'nbsvm'):
    pairs = text_baselines.accuracy(model, 'words and pairs')
    assert pairs['accuracy'] == 1
    assert (pairs['texts'], pairs['asked']) == (80, 3)
    assert text_baselines.accuracy(model, 'words')['features'] == 23
    assert pairs['features'] > 23


def test_a_linear_machine_answers_the_test_split_of_one_file(
  tmp_path, monkeypatch
):
  kinds = {'who': 'person', 'where': 'place', 'when': 'time'}
  texts = [
    (f'{word} {n} is it', kind)
    for n in range(60)
    for word, kind in kinds.items()
  ]
  _write(tmp_path / 'all.jsonl', texts)
  monkeypatch.setenv('BENCHMARK_DATA', f'questions={tmp_path}/all.jsonl:text')
  row = text_baselines.of_questions('words')
  assert row['texts'] + row['asked'] == len(texts)
  assert row['accuracy'] == row['macro_f1'] == 1
