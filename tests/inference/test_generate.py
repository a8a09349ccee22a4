"""Generation end to end, on small random models.

A program takes far longer to make than to run: the tests share a generator, and
ask for few shapes, three prompts or one.
"""

import copy
import dataclasses

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.inference import conversation
from rnn_jax.inference import generate
from rnn_jax.inference import layers
from rnn_jax.inference import sampling
from rnn_jax.models import rounded_weights
from tests.inference import models
from tests.inference import runs

BYTES = tokenizer.Bytes()
GREEDY = sampling.Sampling(temperature=0)
WARM = sampling.Sampling(temperature=1.2)
PROMPTS = ('', 'def main(', 'é' * 20)
PLAIN = {'model_block': 'plain', 'cell_preset': 'simple', 'model_layers': 1}


@pytest.fixture(scope='module', name='built')
def _built():
  return models.build(vocabulary=BYTES.size, **PLAIN)


@pytest.fixture(scope='module', name='generator')
def _generator(built):
  return generate.Generator(*built, BYTES)


def options(**changes):
  values = {'max_new_tokens': 40, 'sampling': WARM, **changes}
  return generate.Options(**values)


def holding(generator, params):
  """The generator with other parameters, and the same programs."""
  other = copy.copy(generator)
  other.params = jax.device_put(layers.unstack(params))
  return other


def biased(params, bias):
  """The parameters of a model that more often ends its texts."""
  bias_V = params['head']['bias'].at[BYTES.boundary].add(bias)
  return params | {'head': params['head'] | {'bias': bias_V}}


def test_greedy_text_is_that_of_full_passes(built, generator):
  settings = options(sampling=GREEDY, max_new_tokens=16)
  generation = generator.generate(PROMPTS, settings)
  for prompt, completion in zip(PROMPTS, generation.completions, strict=True):
    tokens = [BYTES.boundary, *BYTES.encode(prompt).tolist()]
    new = []
    while len(new) < 10 and BYTES.boundary not in new:
      logits = models.full_pass(*built, [*tokens, *new])[-1]
      new.append(int(np.argmax(logits)))
    assert list(completion.tokens[: len(new)]) == new
    assert completion.prompt == prompt
    assert completion.text == BYTES.decode(completion.tokens)


def test_a_prompt_begins_a_document_unless_it_continues_one(built, generator):
  settings = options(sampling=GREEDY, max_new_tokens=1)
  for continues, begin in ((False, [BYTES.boundary]), (True, [])):
    changed = dataclasses.replace(settings, continues=continues)
    for letters in ('abc', 'def', 'ghi'):
      made = generator.generate([*letters], changed).completions
      for letter, completion in zip(letters, made, strict=True):
        tokens = [*begin, *BYTES.encode(letter).tolist()]
        wanted = np.argmax(models.full_pass(*built, tokens)[-1])
        assert completion.tokens[0] == wanted


def test_streamed_parts_add_up_to_the_text_of_one_call(generator):
  pieces = {row: [] for row in range(len(PROMPTS))}
  whole = generator.generate(PROMPTS, options())
  streamed = generator.generate(
    PROMPTS, options(), lambda row, piece: pieces[row].append(piece)
  )
  for row, (a, b) in enumerate(
    zip(whole.completions, streamed.completions, strict=True)
  ):
    assert (a.text, a.tokens, a.reason) == (b.text, b.tokens, b.reason)
    assert ''.join(pieces[row]) == a.text
    assert len(pieces[row]) > 1
    np.testing.assert_allclose(a.logprob, b.logprob, rtol=1e-5)


def test_batches_do_not_change_the_texts(generator):
  prompts = (*PROMPTS, 'a')
  batched, single = (
    generator.generate(prompts, options(batch_size=size)).completions
    for size in (3, 1)
  )
  assert [c.tokens for c in batched] == [c.tokens for c in single]
  seen = []
  generator.generate(
    prompts, options(batch_size=3), lambda row, _: seen.append(row)
  )
  assert set(seen) == {0, 1, 2, 3}


def test_equal_prompts_get_different_texts_and_a_seed_repeats_them(generator):
  first = generator.generate(['a'] * 3, options())
  again = generator.generate(['a'] * 3, options())
  other = generator.generate(['a'] * 3, options(seed=1))
  tokens = [c.tokens for c in first.completions]
  assert len(set(tokens)) == 3
  assert tokens == [c.tokens for c in again.completions]
  assert not set(tokens) & {c.tokens for c in other.completions}


def test_a_text_ends_at_the_boundary(built, generator):
  model, params = built
  params = biased(params, 6)
  eager = holding(generator, params)
  unending, ended = (
    eager.generate([*'abc'], options(stop_at_boundary=stop)).completions[0]
    for stop in (False, True)
  )
  assert len(unending.tokens) == 40
  assert unending.reason == 'length'
  assert unending.text == BYTES.decode(unending.tokens)
  at = unending.tokens.index(BYTES.boundary)
  assert at > 2
  assert ended.tokens == unending.tokens[: at + 1]
  assert ended.reason == 'boundary'
  assert ended.text == BYTES.decode(unending.tokens[:at])
  tokens = [BYTES.boundary, 97, *ended.tokens]
  logprobs = jax.nn.log_softmax(models.full_pass(model, params, tokens))
  wanted = sum(logprobs[1 + n, t] for n, t in enumerate(ended.tokens))
  np.testing.assert_allclose(ended.logprob, wanted, rtol=1e-5)


def test_a_stop_string_ends_the_text_and_only_its_row(generator):
  whole = generator.generate(PROMPTS, options())
  text = whole.completions[1].text
  for length in (1, 3, 20):
    stop = text[11 : 11 + length]
    stopped = generator.generate(PROMPTS, options(stop=('never!', stop)))
    row = stopped.completions[1]
    assert row.text == text[: text.index(stop)]
    assert row.reason == 'stop'
    for n in (0, 2):
      wanted = whole.completions[n].text.partition(stop)[0]
      assert stopped.completions[n].text == wanted


def test_there_is_one_compilation_per_shape_and_nothing_moves(built):
  counts = []
  with jax.transfer_guard('disallow'):
    generator = generate.Generator(*built, BYTES)
    for prompts, changes in (
      (['a'], {}),  # prefill of 65 tokens, loop of 64
      (['b' * 60], {}),
      (['c'], {'max_new_tokens': 33}),
      (['d'], {'seed': 7}),
      (['e' * 70], {}),  # prefill of 129
      (['f'], {'stop': ('x',)}),  # loop of 16
      (['g', 'h'], {}),  # two rows: both
    ):
      listener = (lambda *_: None) if 'stop' in changes else None
      result = generator.generate(prompts, options(**changes), listener)
      counts.append(generator.compilations)
      compiled = result.timing.compile_seconds > 0
      assert compiled == (len(counts) == 1 or counts[-1] > counts[-2])
  assert counts == [2, 2, 2, 2, 3, 4, 6]


def test_timing_counts_tokens(generator):
  timing = generator.generate(PROMPTS, options(stop_at_boundary=False)).timing
  assert timing.prompt_tokens == 1 + 10 + 41
  assert timing.new_tokens == 120
  assert timing.tokens_per_second == 120 / timing.decode_seconds
  assert timing.prefill_seconds > 0


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
  return runs.make(tmp_path_factory.mktemp('run'))


def assert_restored(generator, step):
  """The parameters that it computes with are those of that checkpoint."""
  got = jax.device_get(generator.params)
  wanted = layers.unstack(runs.parameters(step, BYTES))
  jax.tree.map(np.testing.assert_array_equal, got, wanted)


@pytest.mark.parametrize(
  ('which', 'step'), (('best', 2), ('latest', 3), ('1', 1), (3, 3))
)
def test_restores_a_run(run, which, step):
  with jax.transfer_guard('disallow'):
    generator = generate.Generator.from_workdir(run, which)
  assert_restored(generator, step)


def test_the_best_without_an_evaluation_is_the_latest(tmp_path):
  runs.make(tmp_path, losses=(None, None))
  assert_restored(generate.Generator.from_workdir(tmp_path), 2)


def test_a_folder_that_holds_no_checkpoint_is_refused(tmp_path):
  runs.make(tmp_path, losses=())
  with pytest.raises(errors.InputError, match='no checkpoint in .*checkpoints'):
    generate.Generator.from_workdir(tmp_path)
  (tmp_path / 'tokenizer.json').unlink()
  with pytest.raises(errors.InputError, match='tokenizer.json is missing'):
    generate.Generator.from_workdir(tmp_path)


def test_other_folders_and_checkpoints_are_refused(run, tmp_path):
  with pytest.raises(errors.InputError, match="not a run's folder"):
    generate.Generator.from_workdir(tmp_path)
  for which, message in (
    ('first', "checkpoint='first': give 'best', 'latest' or a step"),
    ('7', r'no checkpoint of step 7 .*\[1, 2, 3\]'),
  ):
    with pytest.raises(errors.InputError, match=message):
      generate.Generator.from_workdir(run, which)


def test_bad_prompts_are_refused(built):
  generator = generate.Generator(*built, tokenizer.Characters('abc'))
  with pytest.raises(errors.InputError, match="outside the vocabulary: 'xz'"):
    generator.generate(['abc', 'azx'])
  with pytest.raises(errors.InputError, match='give one or more'):
    generator.generate([])
  with pytest.raises(errors.InputError, match='nothing to read or continue'):
    generator.generate([''], options(continues=True))
  assert generator.compilations == 0


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'max_new_tokens': 0}, 'max_new_tokens=0: give 1 or more'),
    ({'seed': 2**63}, 'seed=9223372036854775808: give a whole number'),
    ({'stop': ('a', '')}, "stop='': an empty string"),
    ({'batch_size': 0}, 'batch_size=0'),
  ),
)
def test_bad_options_are_refused(changes, message):
  with pytest.raises(errors.InputError, match=message):
    options(**changes)


@pytest.mark.parametrize(
  ('stop', 'most', 'longest'),
  (((), 16, 12), (('never',), 40, 20)),  # in one call, and in slices
  ids=('whole', 'slices'),
)
def test_a_text_has_its_minimum_length(built, generator, stop, most, longest):
  eager = holding(generator, biased(built[1], 60))
  for least in (0, 1, longest):
    chosen = options(
      min_new_tokens=least, max_new_tokens=most, stop=stop, sampling=GREEDY
    )
    completion = eager.generate(['ab'] * 3, chosen).completions[0]
    # The boundary is always most likely: it comes as soon as it may.
    assert len(completion.tokens) == least + 1
    assert completion.reason == 'boundary'
    # The model's probability of a token, whether it is allowed or not.
    assert completion.logprob < -30 * least + 1e-3
  with pytest.raises(errors.InputError, match='min_new_tokens=5: give 0 to'):
    options(max_new_tokens=4, min_new_tokens=5)


def test_learned_positions_limit_the_length():
  changes = {'model_positions': 'learned', 'model_max_positions': 60}
  short = {'data_length': 32, 'sample_new_tokens': 8}
  built = models.build(vocabulary=BYTES.size, **PLAIN, **short, **changes)
  generator = generate.Generator(*built, BYTES)
  settings = options(max_new_tokens=16, stop_at_boundary=False)
  (whole,) = generator.generate(['x' * 44], settings).completions
  assert len(whole.tokens) == 16 and np.isfinite(whole.logprob)
  with pytest.raises(errors.InputError, match='=16: after 46 .* only 15 more'):
    generator.generate(['x' * 45], settings)
  with pytest.raises(errors.InputError, match='learned positions for 60 tok'):
    generator.prompts = dataclasses.replace(generator.prompts, asks=True)
    conversation.Conversation(generator, settings)


def test_8_bit_matrices_write_what_the_rounded_model_does(built, generator):
  _, params = built
  packed = generate.Generator(*built, BYTES, weights='int8')
  held = sum(x.nbytes for x in jax.tree.leaves(packed.params))
  whole = sum(x.nbytes for x in jax.tree.leaves(params))
  assert held < 0.5 * whole  # this model is small: scales and vectors weigh
  rounded = jax.jit(lambda x: rounded_weights.unpack(rounded_weights.pack(x)))(
    params
  )
  unpacked = holding(generator, rounded)
  for a, b in zip(
    packed.generate(PROMPTS, options()).completions,
    unpacked.generate(PROMPTS, options()).completions,
    strict=True,
  ):
    assert a.tokens == b.tokens
    np.testing.assert_allclose(a.logprob, b.logprob, rtol=1e-5)
  with pytest.raises(errors.InputError, match="weights='int3': choose one of"):
    generate.Generator(*built, BYTES, weights='int3')


def test_options_that_differ_in_numbers_share_programs(built):
  generator = generate.Generator(*built, BYTES)
  for temperature in (0.7, 0.8, 1.5):
    for top_p in (0.5, 0.9):
      settings = sampling.Sampling(temperature, 5, top_p)
      generator.generate(['a'], options(sampling=settings))
  assert generator.compilations == 2


def test_only_the_programs_used_last_are_kept(built, monkeypatch):
  monkeypatch.setattr(generate, 'PROGRAMS', 2)
  generator = generate.Generator(*built, BYTES)
  first = generator.generate(['a'], options()).completions
  generator.generate(['a'], options(max_new_tokens=3))
  assert generator.compilations == 3
  assert generator.generate(['a'], options()).completions == first
  assert generator.compilations == 4  # its loop had gone, its prefill not


def test_texts_that_do_not_fit_are_refused_at_once(built):
  generator = generate.Generator(*built, BYTES)
  with pytest.raises(errors.InputError, match='max_new_tokens=1,000,000,000,0'):
    generator.generate(['a'], options(max_new_tokens=10**12))
  assert generator.compilations == 0


def test_a_long_text_is_made_in_several_calls(generator, monkeypatch):
  whole = generator.generate(PROMPTS, options(max_new_tokens=40)).completions
  monkeypatch.setattr(generate, 'LONGEST', 16)
  parts = generator.generate(PROMPTS, options(max_new_tokens=40)).completions
  assert parts == whole
