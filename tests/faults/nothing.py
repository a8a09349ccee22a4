"""Data without a token to predict: refused before training, with counts."""

import json
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

LAYOUTS = 'buckets', 'packed', 'padded', 'sorted'
SPLITS = 'train', 'validation', 'test'
SAYS = "split='{}': none of its .* has a token to predict"
HIDDEN = 'abcab=.....'
SHOWN = 'abcab=abcab'


def splits(shared: base.Base) -> Iterator[commands.Attempt]:
  """Trains on pairs that fit no row, and on labels that are all hidden."""
  for layout in LAYOUTS:
    for length in (16, 64):
      yield commands.Attempt(
        f'pairs longer than {length}, layout {layout}',
        'train',
        _pairs(shared, layout, length),
        says=SAYS.format('train') + '.*are too long',
      )
    for split in SPLITS:
      yield commands.Attempt(
        f'hidden labels in {split}, layout {layout}',
        'train',
        _tagged(shared, layout, split),
        expects='success' if split == 'test' else 'refusal',
        says=SAYS.format(split),
      )


def _pairs(shared, layout, length):
  row = {'prompt': 'a', 'chosen': 'c' * 200, 'rejected': 'r' * 200}
  write = base.file('pairs.jsonl', f'{json.dumps(row)}\n'.encode() * 40)
  return lambda folder: [
    *shared.train(
      folder / 'run',
      data__source='jsonl',
      data__path=write(folder),
      data__layout=layout,
      data__length=length,
      data__splits='(100, 0, 0)',
      task__name='dpo',
      adapters__rank=2,
    ),
    f'--init_from={shared.run}',
  ]


def _tagged(shared, layout, hidden):
  def arguments(folder):
    paths = {}
    for split, letter in zip(SPLITS, 'xyz', strict=True):
      (folder / split).mkdir()
      text = HIDDEN if split == hidden else SHOWN
      for m in range(3):
        # No split is a copy of another.
        own = text.replace('a', letter)
        (folder / split / f'{m}.txt').write_text(own)
      key = 'data__path' if split == 'train' else f'data__{split}_path'
      paths[key] = folder / split / '*.txt'
    return shared.train(
      folder / 'run',
      **paths,
      data__layout=layout,
      data__splits='(100, 0, 0)',
      data__tokenizer='characters',
      task__name='tagging',
    )

  return arguments
