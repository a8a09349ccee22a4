"""Prints the probabilities of classes with an exported program.

  python classify.py --text='I was charged twice' --text='Where is it?'
  python classify.py --tokens=72,105,33 --tokens=72
  python classify.py --image=digit.npy

`launch.export --format=stablehlo` writes it next to the program of a classifier
and its parameters; it needs jax and NumPy, and for texts the package
tokenizers. Ids are given without boundaries, which interface.json names and
this script adds. An image is an array of uint8, height x width x channels,
saved by numpy.save.
"""

import argparse
import json
import pathlib

import jax
import numpy as np
from jax import export

DTYPES = {'F32': np.float32, 'I32': np.int32, 'I8': np.int8}


def read_tensors(path: str | pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the arrays of a .safetensors file by name."""
  data = pathlib.Path(path).read_bytes()
  size = int.from_bytes(data[:8], 'little')
  header = json.loads(data[8 : 8 + size])
  header.pop('__metadata__', None)
  tensors = {}
  for name, entry in header.items():
    begin, end = (8 + size + at for at in entry['data_offsets'])
    flat = np.frombuffer(data[begin:end], DTYPES[entry['dtype']])
    tensors[name] = flat.reshape(entry['shape'])
  return tensors


def frame(
  texts: list[list[int]], interface: dict, length: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (tokens_BxL, starts_BxL), texts framed and right-aligned."""
  tokens_BxL = np.zeros((len(texts), length), np.int32)
  starts_BxL = np.zeros((len(texts), length), np.int32)
  boundary = [interface['boundary']]
  for row, ids in enumerate(texts):
    framed = boundary + ids[: interface['longest']] + boundary
    tokens_BxL[row, -len(framed) :] = framed
    starts_BxL[row, : length - len(framed) + 1] = 1
  return tokens_BxL, starts_BxL


class Vocabulary:
  """The ids of texts, by the folder's tokenizer.json.

  Raises:
    SystemExit: the package tokenizers isn't installed, or the model came
      without a vocabulary.
  """

  def __init__(self, folder: pathlib.Path, boundary: int) -> None:
    path = folder / 'tokenizer.json'
    if not path.exists():
      raise SystemExit(f'error: {path}: no such file: give ids, --tokens=1,2')
    try:
      import tokenizers
    except ImportError:
      raise SystemExit(
        "error: a text needs the package 'tokenizers': pip install tokenizers"
      ) from None
    self._boundary = boundary
    self._special, self._plain = (
      tokenizers.Tokenizer.from_str(path.read_text(encoding='utf-8'))
      for _ in range(2)
    )
    self._plain.encode_special_tokens = True
    for each in (self._special, self._plain):
      each.no_truncation()
      each.no_padding()

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text; one with a boundary in it is plain text."""
    ids = self._special.encode(text, add_special_tokens=False).ids
    if self._boundary in ids:
      ids = self._plain.encode(text, add_special_tokens=False).ids
    return ids


class Classifier:
  """An exported folder, opened."""

  def __init__(self, folder: str | pathlib.Path) -> None:
    self._folder = folder = pathlib.Path(folder)
    self.interface = json.loads((folder / 'interface.json').read_text())
    program = export.deserialize((folder / 'classify.stablehlo').read_bytes())
    self._shapes = [aval.shape for aval in program.in_avals]
    self._run = jax.jit(program.call)
    params = read_tensors(folder / 'parameters.safetensors')
    self._params = jax.device_put(params)

  def encode(self, texts: list[str]) -> list[list[int]]:
    """Returns the ids of texts, without boundaries."""
    vocabulary = Vocabulary(self._folder, self.interface['boundary'])
    return [vocabulary.encode(text) for text in texts]

  def texts(self, texts: list[list[int]]) -> np.ndarray:
    """Returns probabilities_NxC of texts, lists of ids."""
    rows, length = self._shapes[-1]
    batches = (
      frame(texts[n : n + rows], self.interface, length)
      for n in range(0, len(texts), rows)
    )
    return np.concatenate([self._batch(*batch) for batch in batches])

  def images(self, image_NxHxWxC: np.ndarray) -> np.ndarray:
    """Returns probabilities_NxC of images, bytes."""
    rows = self._shapes[-1][0]
    starts = range(0, len(image_NxHxWxC), rows)
    return np.concatenate(
      [self._batch(image_NxHxWxC[n : n + rows]) for n in starts]
    )

  def _batch(self, *inputs):
    """Runs up to the program's number of rows; missing ones repeat the last."""
    count, rows = len(inputs[0]), self._shapes[-1][0]
    filled = [x[np.minimum(np.arange(rows), count - 1)] for x in inputs]
    return np.asarray(self._run(self._params, *filled))[:count]


def _ids(parser, text, interface):
  """Returns ids separated by commas, or ends the program."""
  parts = [part.strip() for part in text.split(',') if part.strip()]
  wrong = [
    part
    for part in parts
    if not part.isdecimal() or int(part) >= interface['vocabulary']
  ]
  if wrong:
    parser.error(
      f'--tokens={text}: {wrong[0]!r} is not an id: give numbers below '
      f'{interface["vocabulary"]}, or --text'
    )
  return [int(part) for part in parts]


def main() -> None:
  """Prints {class: probability} for each text or image."""
  parser = argparse.ArgumentParser()
  given = parser.add_mutually_exclusive_group(required=True)
  given.add_argument('--text', action='append')
  given.add_argument('--tokens', action='append')
  given.add_argument('--image', action='append')
  values = parser.parse_args()
  classifier = Classifier(pathlib.Path(__file__).parent)
  reads = 'image' if 'boundary' not in classifier.interface else 'text'
  if (reads == 'image') != bool(values.image):
    parser.error(f'this classifier reads {reads}s: give --{reads}')
  if values.text:
    probabilities_NxC = classifier.texts(classifier.encode(values.text))
  elif values.tokens:
    rows = [_ids(parser, x, classifier.interface) for x in values.tokens]
    probabilities_NxC = classifier.texts(rows)
  else:
    images = [np.load(path, allow_pickle=False) for path in values.image]
    probabilities_NxC = classifier.images(np.stack(images))
  classes = classifier.interface['classes']
  for row in probabilities_NxC:
    pairs = zip(classes, row, strict=True)
    print(json.dumps({name: float(str(p)) for name, p in pairs}))


if __name__ == '__main__':
  main()
