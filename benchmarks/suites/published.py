"""The published comparison in its own form, forward alone and training.

256 sequences of 512 tokens; a row's `sequences` says how many were timed, and
the report scales by them: slow ways of computing get fewer sequences and
repeats. A training row is a step, or a few. Generation makes 100 tokens behind
256, whether by full re-run or step by step.
"""

from benchmarks import cases as cases_lib

OURS = {
  'separate': {'cell.fused': False},
  'fused': {},
  'scan': {'recurrence.impl': 'scan'},
  'chunked': {'recurrence.impl': 'chunked'},
  'scan, remat sqrt': {'recurrence.impl': 'scan', 'remat.every': 'sqrt'},
  'chunked, remat 128': {'recurrence.impl': 'chunked', 'remat.every': 128},
  'chunked, segments of 32': {
    'recurrence.impl': 'chunked',
    'remat.segment': 32,
  },
}
THEIRS = {
  'separate': {},
  'fused': {'fused': True},
  'fused, checkpointed': {'fused': True, 'checkpointed': True},
}
# By loop: (sequences, repeats) of forward and training, batch 1; repeats of
# forward and training, batch 32. Loops by index take minutes a step.
EFFORT = {
  'indexed': ((8, 5), (1, 3), 3, 2),
  'history': ((8, 5), (1, 3), 3, 2),
  'careful': ((32, 5), (8, 5), 5, 5),
}


def cases(quick):
  """Every row of the two tables, ours and PyTorch's."""
  many, length, sequences = (2, 16, 4) if quick else (32, 512, 256)
  listed = [*_ours(many, length, sequences), *_theirs(many, length, sequences)]
  return cases_lib.framed([*listed, *_generation(quick)], quick)


def _size(batch, length, **others):
  weights = cases_lib.PUBLISHED_WEIGHTS
  return {'batch': batch, 'length': length, 'weights': weights, **others}


def _ours(many, length, sequences):
  for batch in (1, many):
    for name, overrides in OURS.items():
      told = f'ours, {name}, batch {batch}'
      size = _size(batch, length, overrides=overrides)
      yield cases_lib.Case(
        f'forward: {told}', 'ours.forward', size | {'sequences': sequences}
      )
      yield cases_lib.Case(f'training: {told}', 'ours.train_step', size)
    yield cases_lib.Case(
      f'training: ours, recurrence removed, batch {batch}',
      'ours.train_step',
      _size(batch, length, cell='without_recurrence'),
    )


def _theirs(many, length, sequences):
  for loop, (forward, training, *repeats) in EFFORT.items():
    yield from _pair(loop, 'separate', 1, length, (forward, training))
    efforts = (sequences, repeats[0]), (many, repeats[1])
    for name in THEIRS if loop != 'history' else ('separate',):
      yield from _pair(loop, name, many, length, efforts)


def _pair(loop, name, batch, length, efforts):
  """A forward pass and a training step of PyTorch's."""
  told = f'PyTorch, {loop}, {name}, batch {batch}'
  (sequences, repeats), (trained, few) = efforts
  size = _size(batch, length, model={'loop': loop, **THEIRS[name]})
  # The published passes kept what a backward pass needs, and ran none.
  kept = {'sequences': sequences, 'gradients': loop != 'careful'}
  yield cases_lib.Case(
    f'forward: {told}', 'torch_peer.forward', size | kept, repeats
  )
  yield cases_lib.Case(
    f'training: {told}',
    'torch_peer.train_step',
    size | {'sequences': trained},
    few,
  )


def _generation(quick):
  size = {'prefix': 8, 'new_tokens': 4} if quick else {}
  size = {'weights': cases_lib.PUBLISHED_WEIGHTS, **size}
  for loop, few in (('indexed', 5), ('careful', 10)):
    for way, repeats in (('rerun', few), ('stepwise', 10)):
      parameters = {'model': {'loop': loop}, 'way': way, **size}
      name = f'generation: PyTorch, {loop}, {way}'
      yield cases_lib.Case(name, 'torch_peer.generate', parameters, repeats)
  # Steps this small can be faster without threads that wait for each other.
  yield cases_lib.Case(
    'generation: PyTorch, careful, stepwise, one core',
    'torch_peer.generate',
    {'model': {'loop': 'careful'}, 'way': 'stepwise', **size},
    core_limit=1,
  )
  for way in ('rerun', 'stepwise', 'generate'):
    name = f'generation: ours, {"one loop" if way == "generate" else way}'
    yield cases_lib.Case(name, f'decoding.{way}', size)
