"""The memory of a generator that answers many varied calls."""

import random

from benchmarks.harness import measure
from rnn_jax.system import host
from tests.faults import commands

SETTLED = 0.2  # of the calls; the memory after them is the first


def calls(count: int) -> measure.Values:
  """Resident bytes after a fifth of the calls, and after all of them."""
  from rnn_jax.inference import generate
  from rnn_jax.system import compile_cache

  with commands.started(1) as (_, shared):
    # As every command does: a program that left the generator is read again.
    compile_cache.keep(f'{shared.folder}/programs')
    generator = generate.Generator.from_workdir(shared.run)
    rng = random.Random(0)
    first = 0
    for number in range(count):
      _call(generator, rng)
      if number + 1 == max(int(SETTLED * count), 1):
        host.release_freed_memory()
        first = host.resident()
    host.release_freed_memory()
  return {
    'tried': count,
    'survived': count,
    'compilations': generator.compilations,
    'programs': generate.PROGRAMS,
    'resident_first_bytes': first,
    'resident_last_bytes': host.resident(),
  }


def _call(generator, rng):
  """Generates with options that no other call has."""
  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling

  prompts = ['the state ' * rng.randint(1, 12)] * rng.randint(1, 6)
  options = generate.Options(
    max_new_tokens=rng.randint(1, 60),
    sampling=sampling.Sampling(
      rng.choice([0.0, rng.uniform(0.1, 2)]),
      rng.choice([0, rng.randint(1, 300)]),
      rng.choice([1.0, rng.uniform(0.1, 1)]),
    ),
    seed=rng.randrange(2**32),
    stop=rng.choice([(), ('x',)]),
    min_new_tokens=rng.choice([0, 1]),
  )
  generator.generate(prompts, options)
