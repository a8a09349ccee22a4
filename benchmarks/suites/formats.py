"""Each cell in each format that it can be written in, and how exact that is.

A model of each cell, 32 wide with two layers and random parameters, is exported
to ONNX with its weights in each format, to StableHLO and to safetensors. Rows
are read by onnxruntime and by ONNX's own evaluator, and step by step by the
StableHLO program; logits are compared with those of the model in float32. What
transformers, flash-linear-attention and llama.cpp have of a cell is read from
the architectures of interop. Nothing is timed.

  pip install -e .[onnx,gguf]
  python -m benchmarks.run --suite=formats      15 minutes on 2 cores
"""

import pathlib
import tempfile

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

ROWS, LENGTH, STEPS, VOCABULARY = 2, 64, 16, 128
FORMATS = 'float32', 'float16', 'bfloat16', 'int8'  # of weights in ONNX
OTHERS = {'mamba3, mimo_rank=4': ('mamba3', {'mimo_rank': 4})}
SMALL = {'bdh': {'neurons': 64}}  # options of a cell
SHOWN = 3  # names of architectures in a table

select = tables.newest_of_any_device


def cases(quick: bool) -> list[case.Case]:
  """Every file of rnn_jax/cells, and other options of some."""
  folder = pathlib.Path(__file__).parents[2] / 'rnn_jax' / 'cells'
  names = sorted(
    path.stem
    for path in folder.glob('*.py')
    if path.stem not in ('__init__', 'base')
  )
  each = {name: (name, SMALL.get(name, {})) for name in names} | OTHERS
  length = 5 if quick else LENGTH
  chosen = [*each.items()][: 2 if quick else None]
  return [
    case.Case(
      name,
      'suites.formats.compared',
      {'cell': cell, 'options': options, 'length': length},
      repeats=0,
    )
    for name, (cell, options) in chosen
  ]


def compared(cell: str, options: dict, length: int) -> tables.Row:
  """How far what reads an export is from the model.

  Returns:
    Differences of logits in units of the largest, by format; `safetensors`,
    whether a copy has the same parameters; `hf` and `gguf`, names of
    architectures.
  """
  import numpy as np

  bundle = _bundle(cell, options, length)
  rng = np.random.default_rng(1)
  tokens = rng.integers(0, VOCABULARY, (ROWS, length), np.int32)
  wanted = _logits(bundle, tokens)

  def difference(logits):
    own = wanted[:, : logits.shape[1]]
    return float(np.abs(logits - own).max() / np.abs(wanted).max())

  with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder)
    row = {}
    for form in FORMATS:
      path = _onnx(bundle, out / form, form)
      row[form] = difference(_by_onnxruntime(path, tokens))
      if form == FORMATS[0]:
        row['reference'] = difference(_by_evaluator(path, tokens))
    steps = min(STEPS, length)
    made = _by_stablehlo(bundle, out / 'stablehlo', tokens[:, :steps])
    row['stablehlo'] = difference(made)
    row['safetensors'] = _comes_back(bundle, out / 'model.safetensors')
  return row | _architectures(cell)


def _bundle(cell, options, length):
  import jax

  from rnn_jax import config as config_lib
  from rnn_jax.data.text import tokenizer as tokenizer_lib
  from rnn_jax.runs import bundle as bundle_lib

  raw = config_lib.default(cell)
  raw.model.update(layers=2, width=32, mlp_width=64)
  raw.cell.update(options)
  raw.data.length = length
  config = config_lib.parse(raw)
  tokenizer = tokenizer_lib.Numbers(VOCABULARY)
  task = bundle_lib.make_task(config, tokenizer)
  params = jax.device_get(task.init_parameters(jax.random.key(0)))
  return bundle_lib.make(config, tokenizer, params)


def _logits(bundle, tokens):
  import jax
  import numpy as np

  from rnn_jax.models import language_model

  model = language_model.from_config(bundle.config, VOCABULARY)

  @jax.jit
  def run(params, tokens):
    state = model.apply({}, len(tokens), method='init_state')
    return model.apply({'params': params}, state, tokens)[1]

  return np.asarray(run(bundle.params, tokens))


def _onnx(bundle, path, form):
  """Returns the graph of a row."""
  from rnn_jax.interop import request
  from rnn_jax.interop.formats import onnx

  onnx.write(bundle, request.Target(path, dtype=form))
  return path / 'row.onnx'


def _feeds(path, tokens):
  import json

  import numpy as np

  interface = json.loads((path.parent / 'interface.json').read_text())
  return {'tokens_BxL': tokens} | {
    f'state.{name}': np.full(
      [len(tokens) if size == 'B' else size for size in x['shape']],
      float(x['value']),
      x['dtype'],
    )
    for name, x in interface['state'].items()
  }


def _by_onnxruntime(path, tokens):
  import onnxruntime

  options = onnxruntime.SessionOptions()
  # Products with weights in 8 bits otherwise round the other factor as well.
  options.add_session_config_entry(
    'session.qdq_matmulnbits_accuracy_level', '1'
  )
  session = onnxruntime.InferenceSession(path, options)
  return session.run(['logits_BxLxV'], _feeds(path, tokens))[0]


def _by_evaluator(path, tokens):
  import onnx
  import onnx.reference

  evaluator = onnx.reference.ReferenceEvaluator(onnx.load(path))
  return evaluator.run(['logits_BxLxV'], _feeds(path, tokens))[0]


def _by_stablehlo(bundle, path, tokens):
  import jax
  import numpy as np
  from safetensors import numpy as safetensors

  from rnn_jax.interop import request
  from rnn_jax.interop.formats import stablehlo

  stablehlo.write(bundle, request.Target(path, batch_size=len(tokens)))
  step = jax.export.deserialize((path / 'step.stablehlo').read_bytes())
  params, state = (
    safetensors.load_file(path / f'{name}.safetensors')
    for name in ('parameters', 'state')
  )
  made, run = [], jax.jit(step.call)
  for token in tokens.T:
    state, logits = run(params, state, token)
    made.append(np.asarray(logits))
  return np.stack(made, 1)


def _comes_back(bundle, path):
  import numpy as np

  from rnn_jax.interop import request
  from rnn_jax.interop.formats import safetensors
  from rnn_jax.runs import bundle as bundle_lib

  safetensors.write(bundle, request.Target(path))
  copy = safetensors.read(request.Source(path))
  old, new = (bundle_lib.flat(x.params) for x in (bundle, copy))
  return old.keys() == new.keys() and all(
    np.array_equal(x, new[name]) for name, x in old.items()
  )


def _architectures(cell):
  """Returns the architectures that may have a cell, by format."""
  from rnn_jax.interop.formats.hf import architectures as of_hf
  from rnn_jax.interop.gguf import architectures as of_gguf

  types = [name for one, name in of_hf.known() if cell in one.CELLS]
  names = [
    name
    for name, module in of_gguf.known().items()
    if any(x in types for x in module.ARCHITECTURES[name])
  ]
  return {'hf': sorted(types), 'gguf': sorted(names)}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each cell."""
  del plots
  columns = *FORMATS, 'reference', 'stablehlo'
  yield tables.table(
    "cell | ONNX, float32 | float16 | bfloat16 | int8 | float32, ONNX's "
    'evaluator | StableHLO, steps | safetensors | `hf` | `gguf`',
    [
      [
        f'`{name}`',
        *(f'{row[key]:.0e}' for key in columns),
        'the same' if row['safetensors'] else 'others',
        _some(row['hf']),
        _some(row['gguf']),
      ]
      for name, row in sorted(rows.items())
      if 'error' not in row
    ],
  )
  yield tables.unmeasured(cases(False), rows)


def _some(names):
  """Returns some names of architectures, and how many there are."""
  shown = ', '.join(f'`{name}`' for name in names[:SHOWN])
  others = len(names) - SHOWN
  return (f'{shown} and {others} more' if others > 0 else shown) or '-'
