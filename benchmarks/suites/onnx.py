"""Exported graphs: logits as the model's own, for every cell; decoding.

Models are 64 wide with two layers and new parameters; logits of onnxruntime are
compared with the model's, both in float32: of a row, of a row in two parts with
the state between them, and of single steps. What is timed is the Mamba-2 of
suite weights, which writes tokens in turns with onnxruntime.

  pip install -e .[onnx]
  python -m benchmarks.run --suite=onnx       20 minutes on 2 cores
  python -m benchmarks.run --suite=onnx --only=decoding
"""

import pathlib
import tempfile

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

ROWS, LENGTH, VOCABULARY = 2, 256, 512
# In the order of docs/interop.md: how a cell runs in a row.
CELLS = {
  'LinearAttention, gated': (
    *('simple_rnn', 'gla', 'retnet', 'hgrn2', 'mamba2', 'mlstm', 'bdh'),
  ),
  'LinearAttention, gated_delta': ('deltanet', 'gated_deltanet', 'kda'),
  'LSTM': ('lstm',),
  'GRU': ('gru',),
  'Scan': ('mamba', 'rg_lru', 'qrnn', 'rwkv7', 'slstm', 'min_lstm', 'rhn'),
  'MatMul, Softmax': ('attention', 'latent_attention'),
}
OPSETS = 27, 21
TIMED = True
DECODING = 'decoding, '
FORMATS = 'float32', 'int8'
SMALL = {
  'new_tokens': 2,
  'sizes': {'vocabulary': 64, 'model.width': 32, 'model.layers': 1},
}


def cases(quick: bool) -> list[case.Case]:
  """Each cell; each format in turns with onnxruntime."""
  length = 5 if quick else LENGTH
  names = [name for cells in CELLS.values() for name in cells]
  compared = [
    case.Case(
      name, 'suites.onnx.compared', {'cell': name, 'length': length}, repeats=0
    )
    for name in names[: 2 if quick else None]
  ]
  return compared + [*_decoding(quick)]


def _decoding(quick):
  """Yields tokens of one row, by onnxruntime and here."""
  for name in FORMATS[: 1 if quick else None]:
    given = {'format': name, 'rows': 1, **(SMALL if quick else {})}
    theirs = f'{DECODING}onnxruntime, {name}'
    for own, workload in (
      (theirs, 'workloads.onnx_decoding.decoding'),
      (f'{DECODING}{name}', 'workloads.packed.decoding'),
    ):
      yield case.Case(own, workload, given, base=theirs)


def compared(cell: str, length: int) -> tables.Row:
  """How far an export's logits are from the model's.

  Returns:
    `row`, `parts` and `steps`, in units of the `largest` logit; `older` is
    `row` of the oldest opset.
  """
  import jax
  import numpy as np

  from rnn_jax.models import language_model

  bundle = _bundle(cell, length)
  rng = np.random.default_rng(1)
  tokens = rng.integers(0, VOCABULARY, (ROWS, length), np.int32)
  model = language_model.from_config(bundle.config, VOCABULARY)

  @jax.jit
  def own(params, tokens):
    state = model.apply({}, ROWS, method='init_state')
    return model.apply({'params': params}, state, tokens)[1]

  wanted = np.asarray(own(bundle.params, tokens))
  largest = float(np.abs(wanted).max())
  differences = {}
  for opset in OPSETS:
    for name, logits in _logits(bundle, tokens, opset):
      key = name if opset == OPSETS[0] else 'older'
      differences[key] = float(np.abs(logits - wanted).max()) / largest
  return differences | {'largest': largest}


def _bundle(cell, length):
  import jax

  from rnn_jax import config as config_lib
  from rnn_jax.data.text import tokenizer as tokenizer_lib
  from rnn_jax.runs import bundle as bundle_lib

  raw = config_lib.default(cell)
  raw.model.update(layers=2, width=64, mlp_width=128)
  raw.data.length = length
  if cell == 'bdh':
    raw.cell.neurons = 256
  config = config_lib.parse(raw)
  tokenizer = tokenizer_lib.Numbers(VOCABULARY)
  task = bundle_lib.make_task(config, tokenizer)
  params = jax.device_get(task.init_parameters(jax.random.key(0)))
  return bundle_lib.make(config, tokenizer, params)


def _logits(bundle, tokens, opset):
  """Yields ways to compute them, each BxLxV; of an older opset only rows."""
  import numpy as np

  from rnn_jax.interop import request
  from rnn_jax.interop.formats import onnx

  length = tokens.shape[1]
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'model'
    onnx.write(bundle, request.Target(path, opset=opset))
    graphs = {name: _open(path / f'{name}.onnx') for name in ('row', 'step')}
    ways = {'row': ('row', [length])}
    if opset == OPSETS[0]:
      half = length // 2
      ways['parts'] = 'row', [half, length - half]
      ways['steps'] = 'step', [1] * length
    for way, (name, sizes) in ways.items():
      yield way, np.concatenate(_run(graphs[name], path, tokens, sizes), 1)


def _open(path):
  import onnxruntime

  return onnxruntime.InferenceSession(path)


def _run(graph, folder, tokens, sizes):
  """Returns the logits of parts of a row, of these sizes."""
  import json

  import numpy as np

  interface = json.loads((folder / 'interface.json').read_text())
  state = {
    f'state.{name}': np.full(
      [ROWS if size == 'B' else size for size in x['shape']],
      float(x['value']),
      x['dtype'],
    )
    for name, x in interface['state'].items()
  }
  names, logits = [output.name for output in graph.get_outputs()], []
  for part in np.split(tokens, np.cumsum(sizes)[:-1], 1):
    made = dict(
      zip(names, graph.run(names, {'tokens_BxL': part, **state}), strict=True)
    )
    state = {name: made[f'next_{name}'] for name in state}
    logits.append(made['logits_BxLxV'])
  return logits


def _form(cell):
  return next(form for form, cells in CELLS.items() if cell in cells)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each cell; then tokens/s of each format."""
  del plots
  good = {name: row for name, row in rows.items() if 'error' not in row}
  timed = tables.with_prefix(rows, DECODING)
  yield tables.table(
    'cell | in a row | row | in two parts | step by step | opset 21 | '
    'largest logit',
    [
      [
        f'`{name}`',
        _form(name),
        *(f'{row[key]:.1e}' for key in ('row', 'parts', 'steps', 'older')),
        tables.digits(row['largest']),
      ]
      for name, row in good.items()
      if not name.startswith(DECODING)
    ],
  )
  if timed:
    yield (
      'A Mamba-2 of 130 million random weights writes tokens, in turns with '
      'onnxruntime on the same cores, one row:'
    )
    columns = {
      'MB': lambda row: f'{row["bytes"] / 1e6:.0f}',
      'tokens/s': lambda row: tables.rate(row['tokens_per_second']),
      'time': lambda row: tables.relative(row, rows.get(row.get('base', ''))),
    }
    yield tables.by_row('weights', timed, columns)
  yield tables.unmeasured(cases(False), rows)
