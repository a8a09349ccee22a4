"""Examples of a text and its class, for a head and for written classes."""

import dataclasses
import json

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text.examples import base as examples_lib
from rnn_jax.data.text.examples import classification
from rnn_jax.data.text.examples import image_classification
from tests.support import corpora

BYTES = tokenizer.Bytes()
EDGE = BYTES.boundary


def documents(labels=(0, 1, 1), texts=('bad', 'good', 'good too')):
  made = corpora.in_memory(*texts)
  made.reader.labels = None if labels is None else np.array(labels)
  return made


def make(length=32, **task):
  options = examples_lib.Options(
    config_lib.section('task', name='classification', **task),
    config_lib.section('data', classes=('no', 'yes')),
    length,
    None,
  )
  return classification.Labelled(documents(), BYTES, options)


def test_a_head_predicts_the_class_only_at_the_last_step():
  ids = make().read(1)
  assert ids.dtype == np.int32
  np.testing.assert_array_equal(
    np.maximum(ids, ~ids), [EDGE, *b'good', EDGE, BYTES.size + 1]
  )
  assert (ids[:-1] < 0).all() and ids[-1] >= 0


def test_the_text_is_predicted_too_where_it_has_a_weight():
  assert (make(text_weight=0.1).read(1) >= 0).all()


def test_a_written_class_is_predicted_with_its_end():
  ids = make(answer='word').read(1)
  np.testing.assert_array_equal(
    np.maximum(ids, ~ids), [EDGE, *b'good', EDGE, *b'yes', EDGE]
  )
  np.testing.assert_array_equal(ids >= 0, [0] * 6 + [1] * 4)


@pytest.mark.parametrize('answer', ('pooled', 'word'))
def test_a_text_that_is_too_long_loses_its_end_not_its_class(answer):
  ids = make(length=7, answer=answer).read(2)
  assert len(ids) <= 8
  assert ids[-1] == (EDGE if answer == 'word' else BYTES.size + 1)
  assert (
    BYTES.decode(~ids[ids < 0])
    == 'good too'[: 7 - 1 - (4, 1)[answer == 'pooled']]
  )


@pytest.mark.parametrize(('answer', 'least'), (('word', 6), ('pooled', 3)))
def test_a_row_without_room_for_a_text_is_refused(answer, least):
  ids = make(length=least, answer=answer).read(2)
  assert len(ids) == least + 1 and ~ids[1] == ord('g')
  for length in range(1, least):
    message = rf'rows of {length} tokens .*answer={answer!r}: give {least} or'
    with pytest.raises(errors.InputError, match=message):
      make(length=length, answer=answer)


@pytest.mark.parametrize(
  'options',
  ({'length_schedule': (5, 20)}, {'evaluate': {'length': 5}}),
  ids=str,
)
def test_a_stage_without_room_is_refused_before_the_first(tmp_path, options):
  path = tmp_path / 'a.jsonl'
  rows = [{'text': f'text {n}', 'label': n % 2} for n in range(20)]
  path.write_text('\n'.join(map(json.dumps, rows)))
  config = corpora.configure(
    source='jsonl', path=str(path), classes=('no', 'yes'), **options
  )
  task = config_lib.section('task', name='classification', answer='word')
  config = dataclasses.replace(config, task=task)
  with pytest.raises(errors.InputError, match='rows of 5 tokens'):
    corpus_lib.Corpus.open(config, tmp_path)


def test_documents_without_classes_or_with_one_are_refused():
  config = corpora.configure(classes=('no', 'yes'), source='text')
  classification.check({'train': documents()}, config)
  with pytest.raises(errors.InputError, match="data.source='text' has no cl"):
    classification.check({'train': documents(None)}, config)
  with pytest.raises(errors.InputError, match=r"of one class, \['yes'\]"):
    classification.check({'train': documents((1, 1, 1))}, config)


@pytest.mark.parametrize('label', (-1, 2))
def test_a_document_without_a_class_is_named(label):
  config = corpora.configure(classes=('no', 'yes'))
  splits = {'train': documents(), 'validation': documents((0, label, -1))}
  message = rf'^1: its class is {label}, and .* are 0 to 1: correct'
  with pytest.raises(errors.InputError, match=message):
    classification.check(splits, config)


@pytest.mark.parametrize('maker', (classification, image_classification))
def test_a_test_split_without_labels_is_refused_when_it_is_used(maker, caplog):
  config = corpora.configure(classes=('no', 'yes'))
  unlabelled = documents((-1, -1, -1))
  classification.check({'train': documents(), 'test': unlabelled}, config)
  assert "'test' cannot be evaluated: 0: its class is -1" in caplog.text
  options = examples_lib.Options(
    config_lib.section('task', name='classification'), config.data, 32, None
  )
  with pytest.raises(errors.InputError, match='^0: .*or use another split'):
    maker.Labelled(unlabelled, BYTES, options)
