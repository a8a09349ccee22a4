"""An engine's life: what it serves, refuses, drops and survives."""

import contextlib
import itertools
import threading
import time
import types

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data.text import turns
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.serving import engine
from rnn_jax.serving import prefixes
from rnn_jax.serving import reading
from rnn_jax.serving import requests
from rnn_jax.serving import scheduler
from rnn_jax.serving import widths
from rnn_jax.serving import work
from tests.serving import models
from tests.support import chats

PROMPTS = ('', 'abc', 'gh fed' * 5, 'a')


@pytest.fixture(scope='module', name='served')
def _served():
  return models.make(models.generator())


@pytest.fixture(scope='module', name='talks')
def _talks():
  """An engine whose model was trained on turns."""
  return models.make(models.generator(asks=True))


def endless(prompt='abc', **changes):
  """A request that ends only with its length."""
  values = {'max_new_tokens': 10**6, 'stop_at_boundary': False, **changes}
  return models.ask(prompt, **values)


def write(served, request):
  """The reply to a request, and to nothing else."""
  prompt, options = request
  return served.generate([prompt], options)[0]


def idle(served):
  """Makes steps until there is nothing to do."""
  while served.step():
    pass


@contextlib.contextmanager
def compilations():
  """Counts the programs that are compiled."""
  made = []

  def listen(event, seconds, **values):
    del seconds, values
    if 'backend_compile' in event:
      made.append(event)

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield made
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize(
  'settings',
  (
    sampling.Sampling(0.0),
    sampling.Sampling(0.9, 5, 0.8),
    sampling.Sampling(
      0.9,
      min_p=0.05,
      repetition_penalty=1.3,
      presence_penalty=0.5,
      frequency_penalty=0.2,
      logit_bias={3: 2.0, 5: -3.0},
    ),
  ),
  ids=repr,
)
def test_tokens_are_those_of_generate(served, settings):
  options = generate.Options(
    max_new_tokens=30, sampling=settings, seed=4, stop=('ab',), min_new_tokens=6
  )
  wanted = models.generator().generate(PROMPTS, options).completions
  asked = requests.Options(
    max_new_tokens=30,
    sampling=settings,
    seed=4,
    stop=('ab',),
    min_new_tokens=6,
  )
  replies = served.generate(PROMPTS, asked)
  for reply, other in zip(replies, wanted, strict=True):
    (completion,) = reply.completions
    assert completion.tokens == other.tokens
    assert completion.text == other.text
    assert completion.reason == other.reason
    np.testing.assert_allclose(completion.logprob, other.logprob, rtol=1e-5)


def test_completions_of_a_request_are_rows_of_its_seed(served):
  (reply,) = served.generate(['abc'], requests.Options(n=6, seed=8))
  wanted = models.generator().generate(['abc'] * 6, generate.Options(seed=8))
  ids = [completion.tokens for completion in reply.completions]
  assert ids == [completion.tokens for completion in wanted.completions]
  assert len(set(ids)) == 6
  assert reply.new_tokens == sum(map(len, ids))
  assert reply.prompt_tokens == 4


def test_packed_weights_write_what_generate_does_with_them():
  packed = models.generator(weights='int8')
  options = generate.Options(max_new_tokens=25, seed=2)
  (wanted,) = packed.generate(['abc'], options).completions
  request = requests.Options(max_new_tokens=25, seed=2)
  served = models.make(packed, chunks=models.CHUNKS[1:])
  (reply,) = served.generate(['abc'], request)
  (got,) = reply.completions
  assert got.tokens == wanted.tokens
  np.testing.assert_allclose(got.logprob, wanted.logprob, rtol=1e-5)


def test_nothing_is_compiled_after_the_start():
  first, second = models.generator(), models.generator(seed=1)
  with jax.transfer_guard('disallow'), compilations() as made:
    served = models.make(first, slots=3)
    count = served.warm_up()
    slots = served._built().slots
    assert count == len(models.CHUNKS) + 2 + slots.compiled
    assert slots.compiled == 5 * len(slots.widths) - 2
    assert made
    made.clear()
    handles = [models.submit(served, models.draw(seed)) for seed in range(30)]
    models.finish(served, handles)
    asked = endless('abc', max_new_tokens=3, returns_state=True)
    state = write(served, asked).state
    write(served, endless('de', max_new_tokens=3, state=state))
    served.reload(second)
    idle(served)
    write(served, endless(max_new_tokens=3))
    assert not made
    assert served.stats().compiled == count


def test_the_next_turn_reads_only_what_is_new(talks):
  """And it gets the bits of a conversation that is read from its beginning."""
  cold = models.make(models.generator(asks=True), prefix_bytes=0)
  ids, known = (
    talks.model().prompts.encode_turns(turns.alternate(['abc def'])),
    0,
  )
  assert ids[0] == ids[-1] == models.CHARACTERS.boundary
  for n, new in enumerate(('gh', 'fed cba' * 4, 'a b c')):
    request = models.ask(ids, max_new_tokens=20, seed=n)
    handle = models.submit(talks, request)
    models.finish(talks, [handle])
    assert models.record(handle) == models.alone(cold, request)
    reply = handle.result()
    assert reply.cached_tokens == known
    idle(talks)
    said = np.array(reply.completions[0].tokens, np.int32)
    if said[-1] != models.CHARACTERS.boundary:
      said = np.append(said, np.int32(models.CHARACTERS.boundary))
    known = len(ids) + len(said)
    ids = np.concatenate(
      [
        ids,
        said,
        talks.model().prompts.encode_turns(turns.alternate([new]), True),
      ]
    )
  read = endless(ids, max_new_tokens=0, returns_state=True)
  state = write(talks, read).state
  assert state.ended
  assert state.count == len(ids)


def test_a_state_of_turns_continues_with_a_turn(talks):
  likely = sampling.Sampling(logit_bias={models.CHARACTERS.boundary: 6.0})
  asked = models.ask(
    'abc', max_new_tokens=99, returns_state=True, seed=1, sampling=likely
  )
  handle = models.submit(talks, asked)
  models.finish(talks, [handle])
  reply = handle.result()
  ids = np.concatenate(
    [
      talks.model().prompts.encode('abc'),
      np.array(reply.completions[0].tokens, np.int32),
      talks.model().prompts.encode_turns(
        turns.alternate(['de']), reply.state.ended
      ),
    ]
  )
  whole = models.alone(talks, models.ask(ids, max_new_tokens=9))
  after = models.ask('de', max_new_tokens=9, state=reply.state)
  assert reply.state.ended  # else the two are read in different chunks
  assert models.alone(talks, after) == whole


def test_a_state_between_turns_of_a_template_is_that_of_the_whole():
  made = models.generator(asks=True, template=chats.CHATML)
  talks = models.make(made, chunks=models.CHUNKS[1:])
  end = made.tokenizer.boundary
  said = [turns.Message('system', 'abc'), turns.Message('user', 'de')]
  whole = '<|im_start|>system\nabc<|im_end|>\n<|im_start|>user\nde<|im_end|>\n'
  whole = chats.ids(whole + '<|im_start|>assistant\n')
  assert talks.model().prompts.encode_turns(said).tolist() == whole
  # A state after the system's turn, one after a reply, one after half of it.
  read = talks.model().prompts.encode_turns(said[:1], None, False)
  asked = models.ask(read, max_new_tokens=0, returns_state=True)
  state = write(talks, asked).state
  for bias, reason in ((50.0, 'boundary'), (-50.0, 'length')):
    asked = models.ask(
      talks.model().prompts.encode_turns(said[1:], state.ended),
      max_new_tokens=3,
      returns_state=True,
      sampling=sampling.Sampling(logit_bias={end: bias}),
      state=state,
    )
    handle = models.submit(talks, asked)
    models.finish(talks, [handle])
    reply = handle.result()
    (completion,) = reply.completions
    assert completion.reason == reason
    assert reply.state.ended == (reason == 'boundary')
    after = models.ask('fg', max_new_tokens=9, state=reply.state)
    ids = [*whole, *completion.tokens] + [end] * (reason == 'length')
    ids += chats.ids(
      '\n<|im_start|>user\nfg<|im_end|>\n<|im_start|>assistant\n'
    )
    continued = talks.model().prompts.encode('fg', ended=reply.state.ended)
    assert ids == [*whole, *completion.tokens, *continued]
    if reason == 'boundary':  # else the two are read in different chunks
      one = models.ask(np.array(ids), max_new_tokens=9)
      assert models.alone(talks, after) == models.alone(talks, one)


def test_turns_are_checked(served, talks):
  with pytest.raises(errors.InputError, match="wasn't trained on turns"):
    served.model().prompts.encode_turns(turns.alternate(['a']))
  end = talks.model().tokenizer.boundary
  ids = talks.model().prompts.encode_turns(turns.alternate(['a', ' ', 'b']))
  a, b = (talks.model().tokenizer.encode(text) for text in 'ab')
  assert ids.tolist() == [end, *a, end, end, *b, end]


def test_free_slots_are_filled_in_the_time_for_reading():
  served = models.make(models.generator(), read_seconds=600.0)
  handles = [models.submit(served, endless()) for _ in range(6)]
  served.step()
  assert served.stats().active == 4
  for handle in handles:
    handle.cancel()
  while served.step():
    pass
  assert all(handle.done for handle in handles)


def test_a_burst_is_read_for_longer_while_no_slot_writes(monkeypatch):
  served = models.make(models.generator(), read_seconds=1.0)
  served.warm_up()
  # Each look at the clock finds more than that later.
  ticks = types.SimpleNamespace(monotonic=itertools.count(0, 1.5).__next__)
  monkeypatch.setattr(scheduler, 'time', ticks)
  handles = [models.submit(served, endless()) for _ in range(3)]
  served.step()
  assert served.stats().active == 3
  handles.append(models.submit(served, endless('abc' * 20)))
  before = served.stats().read_tokens
  served.step()
  assert 0 < served.stats().read_tokens - before <= max(models.CHUNKS)
  for handle in handles:
    handle.cancel()
  idle(served)


def test_a_cancelled_request_frees_its_slot_at_the_next_step(served):
  handles = [
    models.submit(served, endless(n=2, stop=('never',))) for _ in range(3)
  ]
  while served.stats().active < 4:
    served.step()
  first, second, third = handles
  served.step()
  second.cancel()
  served.step()
  assert second.done and not first.done
  reply = second.result()
  assert [c.reason for c in reply.completions] == ['cancelled'] * 2
  everything = [*second]
  for choice, completion in enumerate(reply.completions):
    tokens = [token for token in everything if token.choice == choice]
    assert ''.join(token.text for token in tokens) == completion.text
    assert tuple(token.id for token in tokens) == completion.tokens
    assert completion.tokens
  assert served.stats().active == 4  # the third request had waited for it
  first.cancel()
  third.cancel()
  served.step()
  assert served.stats().active == 0
  assert third.result().completions[0].reason == 'cancelled'


def test_a_request_ends_at_its_deadline(served, monkeypatch):
  late = models.submit(
    served, endless(deadline_seconds=50, n=5)
  )  # one has no slot
  while not served.stats().new_tokens or served.stats().active < 4:
    served.step()
  served.step()
  queued = models.submit(served, endless(deadline_seconds=50))
  patient = models.submit(served, endless(max_new_tokens=3))
  with monkeypatch.context() as patch:
    patch.setattr(work.Job, 'seconds', lambda _: 51.0)
    served.step()
  made = [len(c.tokens) for c in late.result(0).completions]
  assert min(made[:4]) > 0 and made[4] == 0
  for handle in (late, queued):
    reasons = {c.reason for c in handle.result(0).completions}
    assert reasons == {'deadline'}
  models.finish(served, [patient])
  assert patient.result().completions[0].reason == 'length'


def test_a_full_queue_refuses_and_recovers():
  served = models.make(models.generator(), queue=2)
  asked = endless(max_new_tokens=2)
  handles = [models.submit(served, asked) for _ in range(2)]
  with pytest.raises(requests.QueueFullError, match='2 requests wait'):
    models.submit(served, asked)
  assert served.stats().queued == 2
  models.finish(served, handles)
  assert len(served.generate(['a'] * 9, asked[1])) == 9


def test_a_failure_ends_one_request(served, monkeypatch):
  records = work.Row.records

  def fail(self, tokens, *rest):
    if self.job.options.seed == 666:
      raise OSError('the disk is on fire')
    return records(self, tokens, *rest)

  monkeypatch.setattr(work.Row, 'records', fail)
  good, bad = (
    models.submit(served, endless(max_new_tokens=30, seed=seed, n=2))
    for seed in (1, 666)
  )
  models.finish(served, [good, bad])
  with pytest.raises(OSError, match='on fire'):
    bad.result()
  with pytest.raises(OSError, match='on fire'):
    list(bad)
  monkeypatch.undo()
  again = models.submit(served, endless(max_new_tokens=30, seed=1, n=2))
  models.finish(served, [again])
  assert models.record(good) == models.record(again)
  assert served.stats().active == 0


def test_the_engine_survives_a_call_that_fails(served, monkeypatch):
  request = models.draw(1, max_new_tokens=12)
  wanted = models.alone(served, request)
  bad = [models.submit(served, endless()) for _ in range(6)]
  served.step()
  served.step()

  def fail(*_):
    raise MemoryError

  with monkeypatch.context() as patch:
    for program in served._built().slots._programs:
      patch.setattr(program, 'decode', fail)
    served.step()
  for handle in bad:
    with pytest.raises(MemoryError):
      handle.result(0)
  assert models.alone(served, request) == wanted
  assert served.stats().ended['error'] >= 6


def test_a_listener_gets_all_tokens_and_may_fail(served):
  heard = []

  def listen(tokens, ended):
    heard.append((tokens, ended))
    raise RuntimeError('the client has gone')

  handle = models.submit(served, endless(max_new_tokens=10), listen)
  models.finish(served, [handle])
  assert [token for tokens, _ in heard for token in tokens] == [*handle]
  assert [ended for _, ended in heard] == [False] * (len(heard) - 1) + [True]


def test_new_parameters_serve_new_requests():
  old, new = models.generator(), models.generator(seed=1)
  served, other = models.make(old), models.make(new)
  request = models.ask('abc', max_new_tokens=30, seed=1)
  before, after = (models.alone(x, request) for x in (served, other))
  assert before != after
  state = write(served, endless(max_new_tokens=0, returns_state=True)).state
  running = models.submit(served, request)
  served.step()
  done = served.reload(new)
  waiting = models.submit(served, request)
  stale = models.submit(served, endless(max_new_tokens=5, state=state))
  models.finish(served, [running, waiting, stale])
  assert done.result(0) is None
  assert models.record(running) == before
  assert models.record(waiting) == after
  with pytest.raises(errors.InputError, match='state of model'):
    stale.result()
  assert served.model().digest == other.model().digest
  with pytest.raises(errors.InputError, match='reload: the model differs'):
    served.reload(models.generator('lstm'))


def test_a_thread_serves_many_clients_and_drains():
  served = models.make(models.generator())
  wanted = {seed: models.alone(served, models.draw(seed)) for seed in range(12)}
  got = {}

  def ask(seed):
    got[seed] = models.record(models.submit(served, models.draw(seed)))

  with served.running():
    clients = [threading.Thread(target=ask, args=(seed,)) for seed in wanted]
    for client in clients:
      client.start()
    last = models.submit(served, endless(max_new_tokens=300))
    for client in clients:
      client.join()
  assert got == wanted
  assert last.result(0).completions[0].reason == 'length'
  with pytest.raises(requests.ClosedError):
    models.submit(served, endless())
  names = [thread.name for thread in threading.enumerate()]
  assert 'engine' not in names


def test_a_close_ends_what_does_not_drain():
  served = models.make(models.generator())
  with served.running(drain_seconds=0.05):
    handles = [models.submit(served, endless()) for _ in range(5)]
    while served.stats().active < 2:
      time.sleep(0.01)
    with pytest.raises(TimeoutError, match='still running'):
      handles[0].result(0)
  for handle in handles:
    assert handle.result(0).completions[0].reason == 'closed'
  assert handles[0].result().completions[0].tokens


def test_requests_that_the_model_cannot_serve_are_refused(served):
  size = models.CHARACTERS.size
  for prompt, message in (
    ('xyz', 'outside the vocabulary'),
    (np.array([0, size]), f'prompt={size}: give ids from 0 to'),
    (np.array([-1]), 'prompt=-1'),
    (np.array([0.5]), 'give whole numbers'),
    (np.array([[1]]), 'give whole numbers'),
    (np.zeros(0, np.int32), 'nothing to read'),
  ):
    with pytest.raises(errors.InputError, match=message):
      models.submit(served, models.ask(prompt))
  biased = sampling.Sampling(logit_bias={size: 1.0})
  with pytest.raises(errors.InputError, match=f'logit_bias={size}'):
    models.submit(served, models.ask(sampling=biased))
  assert not served.step()


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'max_new_tokens': 0}, 'max_new_tokens=0'),
    ({'seed': 2**63}, 'seed=9223372036854775808'),
    ({'n': 0}, 'n=0'),
    ({'n': 2, 'returns_state': True}, 'n=2: give n=1'),
    ({'alternatives': 21}, 'alternatives=21: give 0 to 20'),
    ({'stop': ('',)}, "stop=''"),
    ({'deadline_seconds': 0}, 'deadline_seconds=0'),
    ({'index': -1}, 'index=-1'),
  ),
)
def test_bad_requests_are_refused(changes, message):
  with pytest.raises(errors.InputError, match=message):
    requests.Options(**changes)


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'slots': 0}, 'slots=0'),
    ({'steps': 0}, 'steps=0'),
    ({'queue': 0}, 'queue=0'),
    ({'prefix_bytes': -1}, 'prefix_bytes=-1'),
    ({'read_seconds': -0.1}, 'read_seconds=-0.1'),
    ({'chunks': ()}, r'chunks=\(\)'),
  ),
)
def test_bad_options_are_refused(changes, message):
  with pytest.raises(errors.InputError, match=message):
    engine.Options(**changes)


def _disturb(monkeypatch, width):
  """Disturbs the last row that a program of that width makes."""
  compile_all = widths.compile_all

  def disturbed(*arguments):
    programs = compile_all(*arguments)
    program = next(each for each in programs if each.width == width)
    decode = program.decode

    def differ(*given):
      carry, produced = decode(*given)
      logits = np.array(carry.logits_BxV)
      logits[-1, 0] = np.nextafter(logits[-1, 0], 9)
      return carry._replace(logits_BxV=logits), produced

    program.decode = differ
    return programs

  monkeypatch.setattr(widths, 'compile_all', disturbed)


def test_rows_that_differ_by_slot_are_refused(monkeypatch):
  _disturb(monkeypatch, 4)
  served = models.make(models.generator())
  with pytest.raises(errors.InputError, match='slots=4: on this device'):
    served.warm_up()


def test_a_width_whose_rows_differ_is_not_used(monkeypatch, served):
  before = served._built().slots.widths
  _disturb(monkeypatch, 2)
  other = models.make(models.generator(weights='int8'))
  other.warm_up()
  assert other._built().slots.widths == (1, 4)
  assert 4 in before


def test_states_are_bounded_while_requests_come(served):
  small = models.make(models.generator(), prefix_bytes=3000)
  idle(small)
  for seed in range(20):
    assert models.alone(small, models.draw(seed)) == models.alone(
      served, models.draw(seed)
    )
    assert small.stats().prefixes.nbytes <= 3000
  assert small.stats().prefixes.evictions > 0
  stats = small.stats()
  assert stats.ended.keys() <= {'length', 'boundary', 'stop'}
  assert stats.new_tokens > 0 and stats.calls * models.STEPS >= stats.steps


def test_prompts_of_others_wait_for_one_chunk_at_most(served):
  """A long prompt doesn't hold up the rows that make tokens."""
  row = models.submit(served, endless(max_new_tokens=400))
  while served.stats().active < 1:
    served.step()
  long = models.submit(served, endless('abcdefgh' * 20, max_new_tokens=2))
  while not long.done:
    before = served.stats()
    served.step()
    after = served.stats()
    assert after.read_tokens - before.read_tokens <= models.CHUNKS[-1]
    assert after.calls == before.calls + 1
  row.cancel()
  served.step()


def test_large_chunks_are_read_in_pieces_while_most_slots_write(monkeypatch):
  """And the bits are those of whole chunks."""
  source = models.generator()
  prompt = models.ask('abcdefgh ' * 5, max_new_tokens=6, seed=3)
  wanted = models.alone(models.make(source, prefix_bytes=0), prompt)
  served = models.make(source, prefix_bytes=0)
  served.warm_up()
  reader = served._built().reader
  assert reader.piece == models.CHUNKS[-2]
  others = [models.submit(served, endless(max_new_tokens=99)) for _ in range(3)]
  while served.stats().active < 3:
    served.step()
  calls = served.stats().calls
  handle = models.submit(served, prompt)
  models.finish(served, [handle])
  assert models.record(handle) == wanted
  # Two calls for each of five largest chunks, and some to write.
  assert served.stats().calls - calls >= 2 * 5
  # A call of enough tokens is delayed by a whole chunk.
  monkeypatch.setattr(scheduler, 'SHARE', 1.0)
  calls = served.stats().calls
  again = models.submit(served, prompt)
  models.finish(served, [again])
  assert models.record(again) == wanted
  assert served.stats().calls - calls < 2 * 5
  models.finish(served, others)


def test_chunks_whose_pieces_differ_are_read_whole(monkeypatch):
  read = reading.Reader.read

  def differ(self, weights, before, tokens, adapter):
    entry = read(self, weights, before, tokens, adapter)
    if len(tokens) == models.CHUNKS[-1]:
      entry = prefixes.Entry(entry.state, entry.logits_1xV + 1e-6)
    return entry

  monkeypatch.setattr(reading.Reader, 'read', differ)
  served = models.make(models.generator())
  served.warm_up()
  assert served._built().reader.piece == 0


def test_learned_positions_limit_the_length():
  served = models.make(models.generator('positions'), chunks=(8,))
  longest = served.model().prompts.longest
  assert longest == 40
  for count in (1, 30, longest):
    asked = endless(
      np.zeros(count, np.int32), max_new_tokens=longest + 1 - count
    )
    reply = write(served, asked)
    assert np.isfinite(reply.completions[0].logprob)
    with pytest.raises(errors.InputError, match='learned positions'):
      models.submit(served, models.changed(asked, max_new_tokens=longest + 1))
  read = endless(np.zeros(30, np.int32), max_new_tokens=0, returns_state=True)
  state = write(served, read).state
  with pytest.raises(errors.InputError, match='only 11 more'):
    models.submit(served, endless('', state=state, max_new_tokens=12))
