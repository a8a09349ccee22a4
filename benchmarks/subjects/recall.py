"""How many answers a small model gets right, trained on one distance."""

from benchmarks.subjects import trained


def answers(
  repeats, model, source, distance, pairs=4, symbols=8, steps=400, seed=0
):
  """Trains on fresh texts and counts right answers on held-out ones.

  `repeats` is of no use here: another seed is another case.
  """
  del repeats
  raw = trained.raw_config(model)
  raw.train.update(steps=steps, seed=seed)
  raw.data.source = source
  raw.data.synthetic.update(
    pairs=pairs,
    distance=distance,
    symbols=symbols,
    seed=seed,
    examples=steps * raw.data.batch_size * 20 // 19 + 20,
  )
  raw.data.splits = (95, 5, 0)
  length = distance + (6 * pairs if source == 'recall' else 2 * pairs + 1)
  raw.data.update(length=length, boundaries=(length,))
  run = trained.train(raw)
  return run.values | {'chance': 1 / symbols, 'length': length}
