"""An opened run: what it generates, predicts and embeds."""

import dataclasses
import functools
import subprocess
import sys

import jax
import numpy as np
import PIL.Image
import pytest

import rnn_jax
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import embedding
from rnn_jax.inference import generate
from rnn_jax.inference import model as model_lib
from rnn_jax.inference import predict
from rnn_jax.inference import sampling
from rnn_jax.models import packed_weights
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import served as served_lib
from tests.support import bundles
from tests.support import classifiers
from tests.support import tiny

PROMPTS = ['the state', 'a']
SAMPLING = {'temperature': 0.7, 'top_k': 9, 'top_p': 0.9}


@pytest.fixture(scope='module', name='writer')
def _writer():
  raw = tiny.raw_config('gone')
  raw.model.update(layers=1, block='plain', mlp_width=0)
  raw.cell.update(preset='simple', heads=1)
  return model_lib.Model(bundles.make(raw, tokenizer_lib.Bytes()))


@pytest.fixture(scope='module', name='classifier')
def _classifier(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs') / 'texts'
  return rnn_jax.load(classifiers.write_texts(folder, pooling='concat'))


@pytest.fixture(scope='module', name='seer')
def _seer():
  return model_lib.Model(classifiers.images_bundle())


def test_the_package_shows_its_api_and_imports_none_of_it():
  assert dir(rnn_jax) == ['__version__', 'layers', 'load', 'ops']
  assert rnn_jax.load is model_lib.load
  with pytest.raises(AttributeError, match='has no attribute .lode'):
    _ = rnn_jax.lode
  code = 'import sys, rnn_jax; dir(rnn_jax); print(*sys.modules)'
  result = subprocess.run(
    [sys.executable, '-c', code],
    cwd=tiny.ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  loaded = result.stdout.split()
  assert 'rnn_jax' in loaded and not {'jax', 'numpy'} & {*loaded}


def test_it_generates_what_the_generator_does(writer):
  options = generate.Options(
    max_new_tokens=16, sampling=sampling.Sampling(0.7, 9, 0.9), seed=3
  )
  wanted = generate.Generator.from_bundle(writer.bundle).generate(
    PROMPTS, options
  )
  given = {'max_new_tokens': 16, **SAMPLING}
  assert writer.generate(PROMPTS, seed=3, **given) == [*wanted.completions]
  (one,) = writer.generate(PROMPTS[0], seed=3, **given)
  assert one.tokens == wanted.completions[0].tokens
  assert writer.generate([]) == []


@pytest.mark.parametrize('stop', ((), ('e', '\x00')))
def test_a_stream_adds_up_to_the_text(writer, stop):
  given = {'max_new_tokens': 40, 'seed': 1, 'stop': stop, **SAMPLING}
  parts = [*writer.stream(PROMPTS[0], **given)]
  assert ''.join(parts) == writer.generate(PROMPTS[0], **given)[0].text
  if not stop:
    assert len(parts) > 1


def test_a_stream_can_be_left_and_refuses_at_once(writer):
  stream = writer.stream(PROMPTS[0], max_new_tokens=40, **SAMPLING)
  assert next(stream)
  stream.close()
  with pytest.raises(errors.InputError, match='max_new_tokens=0: give 1'):
    writer.stream(PROMPTS[0], max_new_tokens=0)


def test_predictions_do_not_depend_on_the_others(classifier):
  texts = classifiers.texts()
  together = classifier.predict(texts)
  assert len({len(text) > 64 for text in texts}) == 2  # two padded lengths
  order = np.random.default_rng(0).permutation(len(texts))
  shuffled = classifier.predict([texts[n] for n in order])
  assert shuffled == [together[n] for n in order]
  assert [classifier.predict(text)[0] for text in texts[:3]] == together[:3]


def test_probabilities_are_the_head_s_of_the_embedding(classifier):
  texts = classifiers.texts()
  features_NxF = classifier.embed(texts).astype(np.float64)
  assert features_NxF.shape == (len(texts), 3 * 16)
  head = classifier.bundle.params['head']
  logits_NxC = features_NxF @ head['kernel'] + head['bias']
  wanted_NxC = np.exp(logits_NxC - logits_NxC.max(-1, keepdims=True))
  wanted_NxC /= wanted_NxC.sum(-1, keepdims=True)
  for prediction, wanted_C in zip(
    classifier.predict(texts), wanted_NxC, strict=True
  ):
    assert tuple(prediction.probabilities) == classifiers.CLASSES
    values = [*prediction.probabilities.values()]
    np.testing.assert_allclose(values, wanted_C, rtol=1e-4, atol=1e-7)
    best = max(prediction.probabilities, key=prediction.probabilities.get)
    assert prediction.label == best


def test_a_probability_is_the_shortest_decimal_of_its_float32():
  rng = np.random.default_rng(0)
  for p in (*rng.random(200, np.float32), np.float32(1e-9), np.float32(1)):
    decimal = repr(predict.shortest(p))
    assert np.float32(decimal) == p and len(decimal) <= len(repr(float(p)))
  assert predict.shortest(np.float32(0.1)) == 0.1


def test_the_embedding_of_a_language_model_is_a_mean_over_steps(writer):
  given = [PROMPTS[0], '']
  result = writer.embed(given)
  model = bundles.model(writer.bundle)
  rows = np.full((2, 10), 256)  # filled up at their ends, which are unread
  rows[0, 1:] = [*given[0].encode()]
  state = model.apply({}, 2, method='init_state')
  run = jax.jit(functools.partial(model.apply, method='features'))
  _, x_BxLxD = run({'params': writer.bundle.params}, state, rows)
  for length, x_LxD, features_D in zip((10, 1), x_BxLxD, result, strict=True):
    wanted_D = np.asarray(x_LxD, np.float64)[:length].mean(0)
    np.testing.assert_allclose(features_D, wanted_D, rtol=1e-4, atol=1e-5)


def test_embeddings_of_texts_of_any_length_have_two_programs(writer):
  """They don't depend on the texts beside them."""
  texts = ['b' * n for n in (0, 5, 62, 63, 64, 255, 256, 300, 600)] * 2
  embedding._read.clear_cache()
  together = writer.embed(texts)
  assert embedding._read._cache_size() == 2
  for text, features_D in zip(texts[:9], together, strict=False):
    np.testing.assert_array_equal(writer.embed(text)[0], features_D)
  model = writer.generator.model
  state = model.apply({}, 1, method='init_state')
  ids = np.full((1, 601), ord('b'))
  ids[0, 0] = writer.bundle.tokenizer.boundary
  run = functools.partial(model.apply, method='features')
  _, x_1xLxD = run({'params': writer.generator.params}, state, ids)
  wanted_D = np.asarray(x_1xLxD[0], np.float64).mean(0)
  np.testing.assert_allclose(together[8], wanted_D, rtol=1e-4, atol=1e-5)


def test_a_model_that_writes_its_answer(tmp_path):
  folder = classifiers.write_texts(tmp_path / 'run', answer='word')
  bundle = bundle_lib.read(folder, 'best')
  # A head without a kernel writes the same token at every step.
  bundle.params['head']['kernel'] = bundle.params['head']['kernel'] * 0
  bias = np.zeros(257, np.float32)
  bias[ord('x')] = 1
  bundle.params['head']['bias'] = bias
  model = model_lib.Model(bundle)
  (answer,) = model.predict('the gate')
  assert answer == predict.Prediction(None, {}, 'xxxxx')  # as long as 'good|'


def test_images_are_arrays_or_files(seer, tmp_path):
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, (3, 4, 4, 1)).astype(np.uint8)
  wanted = seer.predict(pixels)
  PIL.Image.fromarray(pixels[1, ..., 0]).save(tmp_path / 'one.png')
  assert seer.predict(tmp_path / 'one.png') == wanted[1:2]
  assert seer.predict([pixels[2], tmp_path / 'one.png']) == wanted[:0:-1]
  features_NxD = seer.embed(pixels).astype(np.float64)
  head = seer.bundle.params['head']
  logits_NxC = features_NxD @ head['kernel'] + head['bias']
  numbers = [classifiers.CLASSES.index(each.label) for each in wanted]
  assert numbers == [*np.argmax(logits_NxC, -1)]
  for given, message in (
    (pixels[0] / 255, r'image 0 is float64 \[4, 4, 1\]: this model reads'),
    (tmp_path / 'none.png', 'none.png: No such file or directory: give'),
  ):
    with pytest.raises(errors.InputError, match=message):
      seer.predict(given)


def test_what_a_model_can_not_do_is_one_line(writer, classifier, tmp_path):
  for call, message in (
    (lambda: writer.predict('a'), 'writes text, no class: call generate'),
    (lambda: classifier.generate('a'), 'a class, not text: call predict'),
    (lambda: classifier.stream('a'), 'a class, not text: call predict'),
    (lambda: classifier.predict([3]), 'int 3 is not a text'),
    (lambda: classifier.predict('\ud800'), 'an unpaired surrogate'),
    (lambda: rnn_jax.load(tmp_path / 'none'), 'no such folder'),
    (lambda: rnn_jax.load(tmp_path, weights='int3'), "weights='int3': choose"),
  ):
    with pytest.raises(errors.InputError, match=message) as raised:
      call()
    assert '\n' not in str(raised.value)


def test_weights_in_8_bits_are_those_of_the_bundle(classifier, writer):
  packed = model_lib.Model(classifier.bundle, 'int8')
  assert repr(packed) == repr(classifier)
  params = jax.device_get(packed_weights.unpack(packed.bundle.params))
  changed = [
    np.max(np.abs(a - b))
    for a, b in zip(
      jax.tree.leaves(params),
      jax.tree.leaves(classifier.bundle.params),
      strict=True,
    )
  ]
  assert 0 < max(changed) < 0.02
  rounded = dataclasses.replace(classifier.bundle, params=params)
  np.testing.assert_allclose(
    packed.embed(PROMPTS),
    model_lib.Model(rounded).embed(PROMPTS),
    rtol=1e-5,
    atol=1e-6,
  )
  generator = model_lib.Model(writer.bundle, 'int8').generator
  wanted = generate.Generator.from_bundle(writer.bundle, 'int8').params
  assert packed_weights.is_packed(generator.params)
  jax.tree.map(np.testing.assert_array_equal, generator.params, wanted)


def test_a_dialogue_model_chats_and_others_refuse(writer, classifier):
  raw = tiny.raw_config('gone')
  raw.task.name = 'dialogue'
  raw.model.update(layers=1, mlp_width=0)
  model = model_lib.Model(bundles.make(raw, tokenizer_lib.Bytes()))
  said = [{'role': 'user', 'content': 'how are you'}]
  given = {'max_new_tokens': 8, 'seed': 3, **SAMPLING}
  wanted = model.generate('how are you', **given)[0]
  answer = model.chat(said, **given)
  assert (answer.text, answer.tokens) == (wanted.text, wanted.tokens)
  with pytest.raises(errors.InputError, match="wasn't trained on turns"):
    writer.chat(said)
  with pytest.raises(errors.InputError, match='call predict'):
    classifier.chat(said)


@pytest.mark.native
def test_matrices_of_a_server_are_in_memory_once(writer):
  """All that answers shares them: here, the arrays of the device."""
  model = model_lib.Model(writer.bundle, batch_invariant=True)
  assert packed_weights.is_wholly_packed(model.bundle.params)
  generator = model.generator
  served = served_lib.Served(generator, ('float32', 'float32'), (64,), {})
  pairs = map(jax.tree.leaves, (generator.params, served.weights.params))
  assert all(one is other for one, other in zip(*pairs, strict=True))
  first, own = (x.score('a text')[0].logprob for x in (model, writer))
  np.testing.assert_allclose(first, own, rtol=1e-5)
