"""README.md of a folder that others can pick up: the model card.

    ---
    license: other
    pipeline_tag: text-generation
    tags: [rnn_jax, mamba2]
    ---

and after it what the model is, the digests of its data, its scores with their
intervals, and the commands that made it. All of it is read from the run's
folder: data.json, evaluation/SPLIT/scores.json of the checkpoint's step, or
else the last evaluation of metrics.jsonl. No path of the machine is in it.
"""

import json
import pathlib
import re
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import version
from rnn_jax.data import identity
from rnn_jax.interop import request
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import metrics
from rnn_jax.runs import origin
from rnn_jax.system import files

FILE = 'README.md'
LICENSE = re.compile(r'[A-Za-z0-9][A-Za-z0-9.+-]{0,63}')
UNKNOWN = 'other'  # the hub's name of a license that it doesn't know
SCORES = 'evaluation/*/scores.json'
PLACES = re.compile(r'(^|_)(path|dir|cache)$')  # keys of paths
TASKS = (  # the hub's names of what a model does, the first that holds
  ('reads_images', 'image-classification'),
  ('reads_series', 'time-series-forecasting'),
  ('writes_text', 'text-generation'),
  ('labels_tokens', 'token-classification'),
  ('classifies', 'text-classification'),
)
WRITTEN = {  # a format: its --format
  'safetensors': 'hf',
  'GGUF': 'gguf',
  'ONNX': 'onnx',
  'StableHLO': 'stablehlo',
}
OPTIONS = (
  *('dtype', 'max_shard_size', 'opset', 'batch_size', 'platforms', 'license'),
)
LEFT_OUT = (
  'step',
  'parameters',
  'state_bytes',
  'limit',
  'best',
)  # of the scores


class Form(NamedTuple):
  """What is in the folder.

  Attributes:
    format: of its files, one of WRITTEN.
    weights: their dtype.
    architecture: its name there.
  """

  format: str
  weights: str
  architecture: str


def of_programs(bundle: bundle_lib.Bundle, format: str, weights: str) -> Form:
  """Returns the Form of files that run by themselves: its cells name it."""
  cells = '-'.join(dict.fromkeys(bundle.config.model.pattern))
  return Form(format, weights, cells)


def check_license(name: str) -> None:
  """Raises InputError unless a name can be that of a license."""
  if not LICENSE.fullmatch(name):
    errors.refuse(
      '--license', name, "give an identifier of a license, as 'apache-2.0'"
    )


def write(
  folder: pathlib.Path,
  bundle: bundle_lib.Bundle,
  target: request.Target,
  form: Form,
) -> None:
  """Writes the card of a model.

  Args:
    folder: of the files.
    bundle: the model.
    target: what was asked for; its `workdir` is the run's folder.
    form: of the files.
  """
  run = target.workdir
  parts = [
    _front(bundle, target, form),
    *_model(bundle, form),
    *(_data(bundle, run) if run else ()),
    *(_scores(bundle, run) if run else ()),
    *_commands(bundle, target, form),
  ]
  (folder / FILE).write_text('\n'.join(parts) + '\n', encoding='utf-8')


def _front(bundle, target, form):
  task = bundle.config.task
  does = [name for flag, name in TASKS if getattr(task, flag)]
  tags = 'rnn_jax', form.architecture, form.format.lower()
  lines = [f'license: {target.license or UNKNOWN}']
  lines += [f'pipeline_tag: {name}' for name in does[:1]]
  lines += [f'tags: {json.dumps([*dict.fromkeys(tags)])}']
  return '\n'.join(('---', *lines, '---', ''))


def _model(bundle, form) -> Iterator[str]:
  config, tokenizer = bundle.config, bundle.tokenizer
  leaves = bundle_lib.flat(bundle.params)
  count = sum(x.size for x in leaves.values())
  model = config.model
  cells = ', '.join(f'`{cell}`' for cell in dict.fromkeys(model.pattern))
  yield f'# {form.architecture}, {count:,} parameters'
  yield ''
  yield f'Written by rnn_jax {version.__version__}.'
  yield ''
  yield from _table(
    ('', ''),
    (
      ('files', f'{form.format}, weights in {form.weights}'),
      ('task', f'`{config.task.name}`'),
      ('layers', f'{model.layers} of {cells}'),
      ('width', f'{model.width:,}'),
      ('vocabulary', f'{tokenizer.size:,} (`{tokenizer.spec()["kind"]}`)'),
      ('tokens of a row', f'{config.data.length:,}'),
      ('step', f'{bundle.step:,}'),
    ),
  )


def _data(bundle, run) -> Iterator[str]:
  known = _read(run / identity.NAME)
  rows = [
    (split, f'{x["documents"]:,}', f'{x["bytes"]:,}', f'`{x["content"]}`')
    for split, x in known.items()
    if isinstance(x, dict) and {'documents', 'bytes', 'content'} <= x.keys()
  ]
  first = _read(run / origin.NAME)
  if rows or first:
    yield from ('## Data', '')
  if rows:
    source = bundle.config.data.source
    yield f'Source `{source}`; the digest is SHA-256 of the contents, or of a'
    yield 'sample of a large split.'
    yield ''
    yield from _table(('split', 'documents', 'bytes', 'digest'), rows)
  if first:
    yield f'It began with another model, step {first.get("step")} of the run'
    yield f'whose checkpoint has the digest `{first.get("sha256")}`.'
    yield ''


def _scores(bundle, run) -> Iterator[str]:
  listed = [
    row
    for path in sorted(run.glob(SCORES))
    if (row := _read(path)).get('step') == bundle.step
  ]
  if not listed:
    rows = metrics.read(run) if (run / 'metrics.jsonl').exists() else []
    listed = [
      row
      for row in rows[::-1]
      if row.get('split') != 'train' and row.get('step') == bundle.step
    ][:1]
  rows = [
    (row['split'], name, _number(value), _interval(row, name))
    for row in listed
    for name, value in row.items()
    if type(value) in (int, float) and name not in LEFT_OUT
  ]
  if rows:
    yield from ('## Results', '')
    yield from _table(('split', 'score', 'value', '95 % interval'), rows)


def _interval(row, name):
  edges = row.get('intervals', {}).get(name)
  return f'{_number(edges[0])} to {_number(edges[1])}' if edges else ''


def _number(x):
  return f'{x:,}' if isinstance(x, int) else f'{x:.4g}'


def _commands(bundle, target, form) -> Iterator[str]:
  name = target.workdir.name if target.workdir else 'RUN'
  run, out = f'--workdir=runs/{name}', target.path.name
  lines = []
  if bundle.step:
    lines.append(f'python -m launch.train --config=CONFIG {run}')
  options = {name: getattr(target, name) for name in OPTIONS}
  flags = ''.join(
    f' --{name}={",".join(x) if isinstance(x, tuple) else x}'
    for name, x in options.items()
    if x
  )
  written = f'--format={WRITTEN[form.format]}{flags} --output={out}'
  lines.append(f'python -m launch.export {run} {written}')
  yield from ('## Commands', '')
  yield from (f'    {line}' for line in lines)
  yield ''
  yield 'CONFIG describes this run, in which paths are left out:'
  yield ''
  described = _without_places(config_lib.to_dict(bundle.config))
  yield '```json'
  yield files.to_json(described, indent=1)
  yield '```'


def _without_places(value):
  if isinstance(value, Mapping):
    return {
      key: _without_places(x)
      for key, x in value.items()
      if not PLACES.search(key)
    }
  return value


def _table(head, rows) -> Iterator[str]:
  for row in (head, ['---'] * len(head), *rows):
    yield f'| {" | ".join(str(x).replace("|", " ") for x in row)} |'
  yield ''


def _read(path: pathlib.Path) -> dict[str, Any]:
  """Returns a file of the run; nothing, if there is none."""
  if not path.exists():
    return {}
  with files.reading(path, 'remove it'):
    value = files.read_json(path)
    return value if isinstance(value, dict) else {}
