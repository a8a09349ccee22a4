"""The class of a text by an exported graph: onnxruntime, tokenizers, NumPy.

  python classify.py 'I was charged twice'

`launch.export --format=onnx` writes it next to the graphs of a classifier. The
text is read by row.onnx at once, from the state before a document.
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime
import tokenizers

FOLDER = pathlib.Path(__file__).parent


def main(text: str) -> None:
  """Prints the classes and their probabilities, the likeliest first."""
  interface = json.loads((FOLDER / 'interface.json').read_text())
  vocabulary = tokenizers.Tokenizer.from_file(str(FOLDER / 'tokenizer.json'))
  row = onnxruntime.InferenceSession(FOLDER / 'row.onnx')
  state = {  # of one row; a model that reads both directions has none
    f'state.{name}': np.full(
      [1 if size == 'B' else size for size in x['shape']],
      float(x['value']),
      x['dtype'],
    )
    for name, x in interface['state'].items()
  }
  ids = vocabulary.encode(text, add_special_tokens=False).ids
  boundary = interface['boundary']
  framed = [boundary, *ids[: interface['longest']], boundary]
  feeds = {'tokens_BxL': np.array([framed], np.int32), **state}
  ((probabilities,),) = row.run(['probabilities_BxC'], feeds)
  for n in np.argsort(-probabilities):
    print(f'{probabilities[n]:.4f}  {interface["classes"][n]}')


if __name__ == '__main__':
  main(sys.argv[1])
