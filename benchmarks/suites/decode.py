"""Decoding: latency, time against the prefix, throughput, cold start."""

from benchmarks import cases as cases_lib

PREFIXES = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def cases(quick):
  """Latency first; batches beside the forward pass of training."""
  listed = [*_one(quick), *_prefixes(quick), *_batches(quick)]
  return cases_lib.framed(listed, quick)


def _one(quick):
  steps = {'steps': 20} if quick else {}
  yield cases_lib.Case('one step', 'decoding.step', steps)
  size = {'prefix': 8, 'new_tokens': 4} if quick else {}
  yield cases_lib.Case('whole generation', 'decoding.generate', size, 50)
  yield cases_lib.Case('stepwise from Python', 'decoding.stepwise', size)
  for cached in (False, True):
    name = f'cold start, {"compiled before" if cached else "compiling"}'
    yield cases_lib.Case(name, 'decoding.cold_start', {'cached': cached}, 3)


def _prefixes(quick):
  for prefix in PREFIXES[: 2 if quick else None]:
    size = {'prefix': prefix}
    yield cases_lib.Case(f'loop, prefix {prefix}', 'decoding.loop', size, 30)
    yield cases_lib.Case(f'prefill, {prefix}', 'decoding.prefill', size, 30)


def _batches(quick):
  for batch in BATCHES[: 2 if quick else None]:
    size = {'batch': batch, 'prefix': 64}
    yield cases_lib.Case(f'loop, batch {batch}', 'decoding.loop', size)
    size = {'batch': batch, 'sequences': batch, 'length': 32 if quick else 512}
    yield cases_lib.Case(f'forward, batch {batch}', 'ours.forward', size)
