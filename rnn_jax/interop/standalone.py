"""Writes tokens greedily with an exported step: jax and NumPy, nothing else.

  python decode.py --tokens=256,72,105 --new_tokens=20

`launch.export --format=stablehlo` writes it next to the program and its
parameters. Inputs and outputs are ids; interface.json has the boundary that
begins a document. A row of the batch is a list of ids, all of the same length:
--tokens=1,2 --tokens=3,4; missing rows repeat the first.
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


def decode(
  folder: str | pathlib.Path, prompts_BxL: np.ndarray, count: int
) -> np.ndarray:
  """Returns `count` new tokens of each row, BxN.

  Raises:
    ValueError: the program has another number of rows.
  """
  folder = pathlib.Path(folder)
  interface = json.loads((folder / 'interface.json').read_text())
  if len(prompts_BxL) != interface['batch_size']:
    raise ValueError(
      f'{len(prompts_BxL)} rows: the program has {interface["batch_size"]}'
    )
  program = export.deserialize((folder / 'step.stablehlo').read_bytes())
  step = jax.jit(program.call)
  params = jax.device_put(read_tensors(folder / 'parameters.safetensors'))
  state = read_tensors(folder / 'state.safetensors')
  for token_B in np.transpose(np.array(prompts_BxL, np.int32)):
    state, logits_BxV = step(params, state, token_B)
  made = []
  for _ in range(count):
    made.append(np.argmax(np.asarray(logits_BxV), -1).astype(np.int32))
    state, logits_BxV = step(params, state, made[-1])
  return np.stack(made, 1)


def main() -> None:
  """Prints a line of ids for each row."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--tokens', action='append', required=True)
  parser.add_argument('--new_tokens', type=int, default=20)
  given = parser.parse_args()
  folder = pathlib.Path(__file__).parent
  rows = [[int(t) for t in text.split(',')] for text in given.tokens]
  size = json.loads((folder / 'interface.json').read_text())['batch_size']
  filled = rows + rows[:1] * (size - len(rows))
  for row in decode(folder, filled, given.new_tokens)[: len(rows)]:
    print(','.join(map(str, row)))


if __name__ == '__main__':
  main()
