"""A request's bits depend on nothing else that an engine does, nor on drafts.

test_engine.py has the same of threads, and of a simple RNN.
"""

import random

import pytest

from rnn_jax.ops import fixed_order
from rnn_jax.serving import widths
from tests.serving import models

PREFIXES = ('abcdef gh' * 3, 'hg fedcba0')
COUNT = 30  # requests of each cell
DRAFTED = 3


@pytest.fixture(
  scope='module',
  params=(('hybrid', 'bfloat16'), ('lstm', 'float32')),
  ids=lambda param: param[0],
  name='generator',
)
def _generator(request):
  cell, states = request.param
  return models.generator(cell, states=states)


@pytest.fixture(scope='module', name='wanted')
def _wanted(generator):
  """Requests, and the records of each with an engine without a store."""
  served = models.make(generator, prefix_bytes=0)
  drawn = [models.draw(seed, PREFIXES) for seed in range(COUNT)]
  return [(request, models.alone(served, request)) for request in drawn]


@pytest.fixture(scope='module', name='served')
def _served(generator):
  drafted = 0 if fixed_order.lacking() else DRAFTED
  slots = widths.DRAFTING + 1  # calls of all slots have no drafts
  return models.make(
    generator, slots=slots, read_seconds=0.01, draft_tokens=drafted
  )


def test_a_request_is_the_same_with_neighbours(wanted, served):
  """They arrive in bursts, in another order; some of them are cancelled."""
  for seed in range(2):  # the second time the store is warm
    rng = random.Random(seed)
    order = [*enumerate(wanted)]
    rng.shuffle(order)
    handles, others = {}, []
    while order or not all(h.done for h in [*handles.values(), *others]):
      for _ in range(min(rng.choice((0, 0, 1, 3)), len(order))):
        index, (request, _) = order.pop()
        handles[index] = models.submit(served, request)
        if rng.random() < 0.3:
          others.append(
            models.submit(served, models.draw(rng.randrange(10**6)))
          )
      if others and rng.random() < 0.2:
        rng.choice(others).cancel()
      served.step()
    for index, handle in handles.items():
      assert models.record(handle) == wanted[index][1], wanted[index][0]
    assert any(
      c.reason == 'cancelled' for h in others for c in h.result().completions
    )
  stats = served.stats()
  assert stats.prefixes.hits > COUNT
  assert stats.cached_tokens > 0
  if served.options.draft_tokens:
    assert stats.draft_tokens > stats.draft_runs > 0
    assert stats.steps > stats.draft_runs
