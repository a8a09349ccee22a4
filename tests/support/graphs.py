"""Exports as ONNX graphs, and onnxruntime to run them."""

import json

import numpy as np
import onnx
import onnxruntime

from rnn_jax.interop import request
from rnn_jax.interop.formats import onnx as onnx_format


def export(bundle, folder, **options):
  """Exports and checks a bundle. Returns its folder."""
  onnx_format.write(bundle, request.Target(folder, **options))
  for path in folder.glob('*.onnx'):
    onnx.checker.check_model(str(path), full_check=True)
  return folder


def open_graph(path):
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = 1
  # Products with weights in 8 bits otherwise round the other factor as well.
  options.add_session_config_entry(
    'session.qdq_matmulnbits_accuracy_level', '1'
  )
  return onnxruntime.InferenceSession(path, options)


def begin(folder, B):
  """The state before a row, as interface.json describes it."""
  state = json.loads((folder / 'interface.json').read_text())['state']
  return {
    f'state.{name}': np.full(
      [B if size == 'B' else size for size in x['shape']],
      float(x['value']),
      x['dtype'],
    )
    for name, x in state.items()
  }


def run(graph, state, **inputs):
  """Returns (the state, the other outputs by name)."""
  names = [output.name for output in graph.get_outputs()]
  results = dict(zip(names, graph.run(names, {**state, **inputs}), strict=True))
  state = {name: results.pop(f'next_{name}') for name in state}
  return state, results
