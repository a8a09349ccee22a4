"""Writes text greedily with exported graphs: onnxruntime, tokenizers, NumPy.

  python generate.py 'The gate' 40

`launch.export --format=onnx` writes it next to the graphs. A prompt is read by
row.onnx at once, new tokens by step.onnx; both take and give the state.
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime
import tokenizers

FOLDER = pathlib.Path(__file__).parent


def main(prompt: str, count: int) -> None:
  """Prints the prompt and `count` more tokens, or up to the boundary."""
  interface = json.loads((FOLDER / 'interface.json').read_text())
  vocabulary = tokenizers.Tokenizer.from_file(str(FOLDER / 'tokenizer.json'))
  row, step = (
    onnxruntime.InferenceSession(FOLDER / f'{name}.onnx')
    for name in ('row', 'step')
  )
  names = [output.name for output in row.get_outputs()]
  state = {  # before a document, of one row
    f'state.{name}': np.full(
      [1 if size == 'B' else size for size in x['shape']],
      float(x['value']),
      x['dtype'],
    )
    for name, x in interface['state'].items()
  }
  boundary = interface['boundary']
  written = vocabulary.encode(prompt, add_special_tokens=False).ids
  graph, tokens = row, [boundary, *written]
  for _ in range(count):
    feeds = {'tokens_BxL': np.array([tokens], np.int32), **state}
    results = dict(zip(names, graph.run(names, feeds), strict=True))
    state = {name: results[f'next_{name}'] for name in state}
    graph, tokens = step, [int(results['logits_BxLxV'][0, -1].argmax())]
    if tokens == [boundary]:
      break
    written += tokens
  print(vocabulary.decode(written))


if __name__ == '__main__':
  main(sys.argv[1], int(sys.argv[2]))
