"""Writes tokens greedily with an exported step: jax and NumPy, nothing else.

  python decode.py --tokens=256,72,105 --new_tokens=20

It stands in the folder that `launch.export --format=stablehlo` wrote, beside
the program and its parameters. Ids go in and come out; interface.json names
the boundary that begins a document. A row of the batch is a list of ids, all
of them equally long: --tokens=1,2 --tokens=3,4; rows left over repeat the
first.
"""

import argparse
import json
import pathlib

import jax
import numpy as np
from jax import export

DTYPES = {'F32': np.float32, 'I32': np.int32, 'I8': np.int8}


def read_tensors(path):
  """Returns the arrays of a .safetensors file by name."""
  data = pathlib.Path(path).read_bytes()
  size = int.from_bytes(data[:8], 'little')
  header = json.loads(data[8 : 8 + size])
  header.pop('__metadata__', None)
  found = {}
  for name, entry in header.items():
    begin, end = (8 + size + at for at in entry['data_offsets'])
    flat = np.frombuffer(data[begin:end], DTYPES[entry['dtype']])
    found[name] = flat.reshape(entry['shape'])
  return found


def decode(folder, prompts_BxL, count):
  """Returns `count` new tokens of each row, BxN.

  Raises:
    ValueError: another number of rows than the program was made for.
  """
  folder = pathlib.Path(folder)
  interface = json.loads((folder / 'interface.json').read_text())
  if len(prompts_BxL) != interface['batch_size']:
    raise ValueError(
      f'{len(prompts_BxL)} rows: it was made for {interface["batch_size"]}'
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


def main():
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
