"""Requests with all kinds of options, each by itself and among others."""

import random

import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads.serving import model as model_lib
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving import requests as requests_lib

PREFIXES = 4  # beginnings that half of the prompts share
FEW = 4  # tokens of texts that repeat, so that drafts are often right


def alone_and_together(
  requests: int,
  slots: int = 16,
  weights: str = 'float32',
  overrides: model_lib.Overrides = None,
  draft_tokens: int = 0,
  longest: int = 40,
  part: int = 0,
) -> measure.Values:
  """How many requests get other bits among others than by themselves.

  By themselves: one after the other, on an engine that stores no state and
  drafts nothing. Together: on an engine that stores states and, of a model
  whose texts repeat, checks `draft_tokens`; in another order, in bursts, with
  further requests between them, some of which are cancelled. All that a client
  gets is compared: ids, texts, reasons, bits of log-probabilities, and the
  most likely alternatives.

  Args:
    requests: how many are compared.
    slots: of both engines.
    weights: the format of the matrices.
    overrides: of the model's config.
    draft_tokens: as above.
    longest: the most new tokens of a request; prompts have up to 17 times as
      many.
    part: which requests, of those that are `requests` at a time.
  """
  bundle = model_lib.make(overrides)
  if draft_tokens:
    bundle = model_lib.of_few_tokens(bundle, FEW)
  source = generate.Generator.from_bundle(bundle, weights)
  rng = np.random.default_rng(0)
  begins = [
    model_lib.prompt(rng, rng.integers(16, 15 * longest))
    for _ in range(PREFIXES)
  ]
  first = part * requests
  asked = [
    _draw(seed, begins, longest) for seed in range(first, first + requests)
  ]
  engine = engine_lib.Engine(
    source, engine_lib.Options(slots=slots, prefix_bytes=0)
  )
  alone = [_alone(engine, request) for request in asked]
  engine = engine_lib.Engine(
    source, engine_lib.Options(slots=slots, draft_tokens=draft_tokens)
  )
  together, others = _together(engine, asked, begins, longest)
  pairs = [*zip(alone, together, strict=True)]
  reasons = [
    completion.reason
    for handle in others
    for completion in handle.result().completions
  ]
  stats = engine.stats()
  return model_lib.facts(source) | {
    'requests': requests,
    'tokens': sum(len(tokens) for tokens, _ in alone),
    'different': sum(a != b for a, b in pairs),
    'others': len(others),
    'cancelled': reasons.count('cancelled'),
    'cached_tokens': stats.cached_tokens,
    'prompt_tokens': stats.prompt_tokens,
    'draft_tokens': stats.draft_tokens,
    'draft_runs': stats.draft_runs,
  }


def _draw(seed, begins, longest):
  """A random request."""
  rng = random.Random(seed)
  length = rng.randint(1, 2 * longest + 10)
  ids = model_lib.prompt(np.random.default_rng(seed), length)
  if rng.random() < 0.5:
    ids = np.concatenate([rng.choice(begins), ids])
  new = rng.randint(1, longest)
  return ids, requests_lib.Options(
    max_new_tokens=new,
    sampling=_sampling(rng),
    seed=rng.randrange(2**32),
    n=rng.choice((1, 1, 1, 2)),
    stop=rng.choice(((), (), ('a', 'e '))),
    stop_at_boundary=rng.random() < 0.8,
    alternatives=rng.choice((0, 0, 3)),
    min_new_tokens=rng.choice((0, new // 2)),
  )


def _sampling(rng):
  values = {'temperature': rng.choice((0.0, 0.7, 1.0, 1.5))}
  if rng.random() < 0.5:
    values['top_k'] = rng.choice((0, 1, 5, 70))
    values['top_p'] = rng.choice((1.0, 0.9, 0.5))
  if rng.random() < 0.3:
    values['min_p'] = rng.choice((0.05, 0.3))
  if rng.random() < 0.3:
    values['repetition_penalty'] = rng.choice((1.0, 1.3))
    values['presence_penalty'] = rng.choice((0.0, 0.5))
    values['frequency_penalty'] = rng.choice((0.0, -0.5))
  if rng.random() < 0.2:
    values['logit_bias'] = {rng.randrange(256): rng.choice((-5.0, 5.0))}
  return sampling.Sampling(**values)


def _alone(engine, request):
  handle = engine.submit(*request)
  while not handle.done:
    engine.step()
  return _record(handle)


def _together(engine, asked, begins, longest):
  rng = random.Random(0)
  order = [*enumerate(asked)]
  rng.shuffle(order)
  handles, others = {}, []
  while order:
    for _ in range(min(rng.choice((0, 0, 1, 3)), len(order))):
      if engine.stats().queued >= engine.options.queue - 2:
        break
      number, request = order.pop()
      handles[number] = engine.submit(*request)
      if rng.random() < 0.2:
        drawn = _draw(rng.randrange(10**6, 10**9), begins, longest)
        others.append(engine.submit(*drawn))
    if others and rng.random() < 0.2:
      rng.choice(others[-4:]).cancel()
    engine.step()
  for handle in (*handles.values(), *others):
    while not handle.done:
      engine.step()
  return [_record(handles[n]) for n in range(len(asked))], others


def _record(handle):
  tokens = [
    (x.choice, x.id, x.text, x.logprob.hex(), x.alternatives) for x in handle
  ]
  tokens.sort(key=lambda token: token[0])  # completions come in any order
  texts = [(c.text, c.tokens, c.reason) for c in handle.result().completions]
  return tokens, texts
