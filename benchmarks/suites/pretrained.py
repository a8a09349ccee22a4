"""Folders of transformers: logits as theirs, conversion, and decoding.

Weights are random. Logits are compared with those of transformers in float64.
A Mamba-2 of the published 130 million weights is converted, and then reads a
prompt and writes, compared with transformers' own on the same cores, in turns.

  pip install -e .[peers]
  python -m benchmarks.run --suite=pretrained      12 minutes on 2 cores
"""

import contextlib
import pathlib
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.workloads import pretrained

TIMED = True
PLATFORM = 'cpu'

ROWS = 2
SMALL = {'sizes': {'hidden_size': 32, 'num_heads': 1, 'num_hidden_layers': 2}}
LARGE = 'Mamba-2, 130 million'
WORK = {  # prompt and new tokens
  'decoding': {'prompt': 16, 'new_tokens': 64},
  'reading': {'prompt': 512, 'new_tokens': 1},
}
QUICK = {'prompt': 4, 'new_tokens': 2}


def cases(quick: bool) -> list[case.Case]:
  """Each architecture's logits; the large model converted, and at work."""
  listed = [
    case.Case(
      f'logits: {kind}', 'suites.pretrained.compared', {'kind': kind}, repeats=0
    )
    for kind in [*pretrained.SIZES][: 1 if quick else None]
  ]
  small = SMALL if quick else {}
  listed.append(
    case.Case(f'{LARGE}: converting', 'suites.pretrained.converting', small, 5)
  )
  for what, sizes in WORK.items():
    given = (QUICK if quick else sizes) | small
    theirs = f'{LARGE}: {what}, transformers'
    for name, workload in ((theirs, 'theirs'), (f'{LARGE}: {what}', 'ours')):
      listed.append(
        case.Case(name, f'suites.pretrained.{workload}', given, base=theirs)
      )
  return listed


def compared(kind: str) -> tables.Row:
  """How far our logits, in float32, are from theirs, in float64.

  Returns:
    `difference` of whole rows, `steps` of as many single steps, `packed` of all
    rows in one, each the largest, with the `largest` logit; and whether the
    folder is `same` bit for bit when it is exported.
  """
  import numpy as np

  from rnn_jax.interop.formats import hf

  shape = ROWS, pretrained.LENGTH
  tokens = np.random.default_rng(1).integers(0, pretrained.VOCABULARY, shape)
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    model = pretrained.write(kind, pretrained.SIZES[kind], root / 'theirs')
    wanted = pretrained.logits(model, tokens)
    if kind == 'KimiLinear':
      pretrained.publish(root / 'theirs')
    bundle = _read(root / 'theirs')
    hf.write(bundle, _target(root / 'back'))
    same = _same_tensors(root / 'theirs', root / 'back')
  return {
    name: float(np.abs(found - wanted).max())
    for name, found in _logits(bundle, tokens)
  } | {'largest': float(np.abs(wanted).max()), 'same': same}


def _read(folder):
  from rnn_jax.interop import request
  from rnn_jax.interop.formats import hf

  return hf.read(request.Source(folder))


def _target(folder):
  from rnn_jax.interop import request

  return request.Target(folder)


def _same_tensors(one, other):
  """Whether two folders have the same names, and the same bits in each."""
  import safetensors.numpy

  first, second = (
    {
      name: x
      for path in sorted(folder.glob('*.safetensors'))
      for name, x in safetensors.numpy.load_file(path).items()
    }
    for folder in (one, other)
  )
  return first.keys() == second.keys() and all(
    x.tobytes() == second[name].tobytes() for name, x in first.items()
  )


def _logits(bundle, tokens_BxL):
  """Yields ways to compute them, each BxLxV."""
  import jax
  import jax.numpy as jnp

  from rnn_jax.models import language_model

  model = language_model.from_config(bundle.config, bundle.tokenizer.size)
  params = {'params': jax.device_put(bundle.params)}
  tokens = jnp.array(tokens_BxL)
  rows, length = tokens.shape

  def fresh(rows):
    return model.apply({}, rows, method='init_state')

  @jax.jit
  def whole(params):
    return model.apply(params, fresh(rows), tokens)[1]

  @jax.jit
  def steps(params):
    def step(state, token_B):
      return model.apply(params, state, token_B[:, None])

    return jax.lax.scan(step, fresh(rows), tokens.T)[1][:, :, 0].swapaxes(0, 1)

  @jax.jit
  def packed(params):
    row = tokens.reshape(1, -1)
    starts = jnp.zeros(row.shape, jnp.int32).at[:, ::length].set(1)
    _, logits = model.apply(params, fresh(1), row, starts)
    return logits.reshape(rows, length, -1)

  yield 'difference', whole(params)
  yield 'steps', steps(params)
  yield 'packed', packed(params)


def converting(repeats: int, sizes: tables.Row | None = None) -> tables.Row:
  """launch.convert of the large model: seconds, bytes, resident memory.

  `growth` is how far its peak is above that of the same command on a model of a
  few kilobytes.
  """
  with _large(SMALL['sizes']) as (folder, _):
    least = _peak_of_converting(folder)
  with _large(sizes) as (folder, _):
    files = sum(x.stat().st_size for x in folder.glob('*.safetensors'))
    peaks = []
    values = measure.repeat(
      lambda: peaks.append(_peak_of_converting(folder)), repeats
    )
  growth = max(peaks) - least
  return values | {'bytes': files, 'growth': growth, 'peak': max(peaks)}


@contextlib.contextmanager
def _large(sizes) -> Iterator[tuple[pathlib.Path, object]]:
  """A folder with the large model, and that model as PyTorch's."""

  with tempfile.TemporaryDirectory() as folder:
    where = pathlib.Path(folder, 'mamba2')
    given = pretrained.LARGE | (sizes or {})
    yield where, pretrained.write('Mamba2', given, where)


# Prints the most resident bytes of a command.
PEAK = """
import resource, subprocess, sys
command = [sys.executable, '-m', *sys.argv[1:]]
subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
print(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _peak_of_converting(folder):
  import subprocess

  from benchmarks.harness import workers

  with tempfile.TemporaryDirectory() as made:
    command = [
      'launch.convert',
      '--format=hf',
      f'--input={folder}',
      f'--workdir={made}/run',
    ]
    result = subprocess.run(
      [sys.executable, '-c', PEAK, *command],
      cwd=workers.ROOT,
      capture_output=True,
      text=True,
      check=True,
    )
  return int(result.stdout)


def theirs(
  repeats: int, prompt: int, new_tokens: int, sizes: tables.Row | None = None
) -> tables.Row:
  """transformers reads a prompt and writes, greedily, one row."""
  import torch

  with _large(sizes) as (_, model):
    ids = torch.from_numpy(_prompt(prompt, model.config.vocab_size))[None]

    def run():
      with torch.no_grad():
        model.generate(
          ids,
          attention_mask=torch.ones_like(ids),
          max_new_tokens=new_tokens,
          min_new_tokens=new_tokens,
          do_sample=False,
        )

    values = measure.with_memory(run, repeats)
  return values | {'weights': sum(x.numel() for x in model.parameters())}


def ours(
  repeats: int, prompt: int, new_tokens: int, sizes: tables.Row | None = None
) -> tables.Row:
  """The converted model reads the same prompt and writes as many tokens."""
  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling
  from rnn_jax.runs import bundle as bundle_lib

  with _large(sizes) as (folder, model):
    del model
    workdir = folder.with_name('run')
    bundle_lib.write(_read(folder), workdir)
    generator = generate.Generator.from_workdir(workdir, 'latest')
    ids = _prompt(prompt, generator.tokenizer.size)
    options = generate.Options(
      max_new_tokens=new_tokens,
      sampling=sampling.Sampling(temperature=0),
      stop_at_boundary=False,
    )
    return measure.with_memory(
      lambda: generator.generate([ids], options), repeats
    )


def _prompt(length, vocabulary):
  import numpy as np

  return np.random.default_rng(0).integers(1, vocabulary, length)


LOGITS = {
  'rows': lambda row: f'{row["difference"]:.1e}',
  'step by step': lambda row: f'{row["steps"]:.1e}',
  'packed': lambda row: f'{row["packed"]:.1e}',
  'largest logit': lambda row: tables.digits(row['largest']),
  'same folder back': lambda row: 'yes' if row['same'] else 'no',
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Differences of logits, then the large model."""
  if logits := tables.with_prefix(rows, 'logits: '):
    yield tables.by_row('of transformers', logits, LOGITS)
  yield tables.table(
    'Mamba-2, 130 million | seconds | relative to transformers',
    [
      [name, tables.timed(row), tables.relative(row, rows.get(row.get('base')))]
      for name, row in tables.with_prefix(rows, f'{LARGE}: ').items()
    ],
  )
  if row := tables.good(rows, f'{LARGE}: converting'):
    yield (
      f'Converting: {tables.mebibytes(row["bytes"])} of tensors, and resident '
      f'memory grows by {tables.mebibytes(row["growth"])}, '
      f'{tables.times(row["growth"] / row["bytes"])} the file.'
    )
  yield tables.unmeasured(cases(False), rows)
