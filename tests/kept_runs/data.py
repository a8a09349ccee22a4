"""The data of kept runs: files of a few kilobytes, the same each time."""

import io
import json
import pathlib
import random
import zipfile

import numpy as np
from PIL import Image

from tests.support import labelled_series
from tests.support import series
from tests.support import tiny

CLASSES = ('bad', 'fair', 'good')
TURNS = ('how are you', 'very well', 'where is it', 'over there')
ROWS = 40
SIZE = 4  # pixels of an image


def write(folder: pathlib.Path) -> None:
  """Makes the folder."""
  folder.mkdir()
  rng = random.Random(0)
  _write_csv(folder / 'texts.csv', 'text,label', _texts(rng))
  _write_csv(folder / 'tagged.csv', 'text', _tagged(rng))
  rows = [json.dumps({'turns': _turns(rng)}) for _ in range(ROWS)]
  (folder / 'dialogues.jsonl').write_text('\n'.join(rows) + '\n')
  _write_images(folder / 'images.zip', rng)
  for name, frame in (
    ('series', series.frame(count=3, length=48)),
    ('labelled', labelled_series.frame()),
  ):
    frame.round(2).to_csv(folder / f'{name}.csv', index=False)


def image(label: int, rng: random.Random) -> np.ndarray:
  """Returns gray pixels, bright in rows from `label` on; uint8, HxWx1."""
  noise = [[rng.randrange(64) for _ in range(SIZE)] for _ in range(SIZE)]
  bright = 160 * (np.arange(SIZE) > label)[:, None]
  return np.uint8(noise + bright)[..., None]


def _texts(rng):
  """A text's class is how often it has the word 'gate'."""
  for n in range(ROWS):
    words = rng.choices(tiny.WORDS, k=4) + ['gate'] * 2 * (n % 3)
    rng.shuffle(words)
    yield f'{" ".join(words)},{CLASSES[n % 3]}'


def _tagged(rng):
  """The label of a character is the one before it, at first 0."""
  for _ in range(ROWS):
    bits = ''.join(rng.choices('01', k=8))
    yield f'{bits}=0{bits[:-1]}'


def _turns(rng):
  first = 2 * rng.randrange(2)
  return [f'{TURNS[first]} {rng.choice(tiny.WORDS)}', TURNS[first + 1]]


def _write_csv(path, header, rows):
  path.write_text('\n'.join([header, *rows]) + '\n')


def _write_images(path, rng):
  with zipfile.ZipFile(path, 'w') as archive:
    for n in range(ROWS):
      content = io.BytesIO()
      pixels = image(n % 3, rng)[..., 0]
      Image.fromarray(pixels).save(content, 'png')
      name = zipfile.ZipInfo(f'{CLASSES[n % 3]}/{n:02}.png')
      archive.writestr(name, content.getvalue())
