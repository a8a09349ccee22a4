"""Compressed models: perplexity, bytes on the disk, tokens per second.

configs/stdlib_bytes.py is trained once for each way, then compressed that way.

  python -m benchmarks.run --suite=compression     2 hours on 2 cores
"""

import dataclasses
import pathlib
import statistics
import tempfile
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

QUICK = {'steps': 4, 'more_steps': 4, 'new_tokens': 8, 'small': True}
SHARES = (0.5, 0.75, 0.9)
PACKED = '8 bits: matrices'


def cases(quick: bool) -> list[case.Case]:
  """For each way a model is trained, the same one, then compressed."""
  small = QUICK if quick else {}
  return [
    case.Case(
      way,
      'suites.compression.variants',
      {'way': way, **small},
      timeout=7200.0,
    )
    for way in WAYS
  ]


def variants(
  repeats: int,
  way: str,
  steps: int = 1500,
  more_steps: int = 300,
  new_tokens: int = 400,
  small: bool = False,
) -> tables.Row:
  """Trains the model, compresses it, and measures each variant.

  Args:
    repeats: generations that are timed.
    way: one of WAYS.
    steps: of training, of a student too.
    more_steps: of training after or under pruning, at a tenth of the rate.
    new_tokens: of a generation.
    small: whether the model is a tiny one, for a rehearsal.

  Returns:
    {'variants': {name: Job.measure()}, ...}
  """
  with tempfile.TemporaryDirectory() as folder:
    raw = raw_config(steps, small)
    job = Job(pathlib.Path(folder), raw, more_steps, repeats, new_tokens)
    trained = train(raw, job.teacher, 'best')
    measured = {'float32': job.measure(trained)}
    measured.update(WAYS[way](job, trained))
  return {
    'variants': measured,
    'steps': steps,
    'more_steps': more_steps,
    'bytes_of': 'parameters',
  }


def raw_config(steps: int, small: bool) -> Any:
  """The config of the model that is compressed."""
  from configs import stdlib_bytes

  raw = stdlib_bytes.get_config()
  raw.train.update(steps=steps, checkpoint_every=steps)
  raw.evaluate.every = 0
  raw.schedule.warmup_steps = min(100, steps // 2)
  if small:
    raw.model.update(layers=1, width=16, mlp_width=16)
    raw.data.update(length=32, segment_bytes=512, splits=(98, 1, 1))
  return raw


def train(raw: Any, folder: pathlib.Path, which: str) -> Any:
  """Trains a config in a work folder. Returns its bundle `which`."""
  from rnn_jax import config as config_lib
  from rnn_jax.runs import bundle as bundle_lib
  from rnn_jax.training import loop

  loop.train(config_lib.parse(raw), str(folder))
  return bundle_lib.read(folder, which)


@dataclasses.dataclass(frozen=True)
class Job:
  """Where models are, and how they are trained and measured."""

  root: pathlib.Path
  raw: Any  # the config of the model that is compressed
  more_steps: int
  repeats: int
  new_tokens: int

  @property
  def teacher(self) -> pathlib.Path:
    """The work folder of the model that is compressed."""
    return self.root / 'run'

  def new_folder(self) -> pathlib.Path:
    """A work folder that doesn't exist yet."""
    return pathlib.Path(tempfile.mkdtemp(dir=self.root)) / 'model'

  def write(self, bundle: Any) -> pathlib.Path:
    """Writes a bundle, only its parameters. Returns the new work folder."""
    from rnn_jax.runs import bundle as bundle_lib

    folder = self.new_folder()
    bundle_lib.write(bundle, folder)
    return folder

  def train_on(self, bundle: Any, changes: tables.Row) -> Any:
    """The bundle after `more_steps`, with those keys of section `pruning`."""
    raw = self.raw.copy_and_resolve_references()
    rate = raw.optimizer.learning_rate / 10
    raw.optimizer.learning_rate = rate
    raw.schedule.update(warmup_steps=0, final_learning_rate=rate / 10)
    raw.train.update(steps=self.more_steps, checkpoint_every=self.more_steps)
    raw.pruning.update(changes)
    return train(raw, self.write(bundle), 'latest')

  def measure(self, bundle: Any) -> tables.Row:
    """Perplexity, tokens per second, share of zeros, and bytes: `bytes` are
    those of a checkpoint of only the parameters, `held_bytes` those of the
    parameters while writing.
    """
    return self.measure_folder(self.write(bundle))

  def measure_folder(self, folder: pathlib.Path) -> tables.Row:
    """The same of a bundle that `write` has written."""
    from rnn_jax.runs import bundle as bundle_lib
    from rnn_jax.training import evaluate
    from rnn_jax.training import pruning

    run = evaluate.Run.open(str(folder), 'latest')
    scores = evaluate.evaluate_run(run, 'validation')
    (state,) = (folder / 'checkpoints').glob('*/state')
    files = (path for path in state.rglob('*') if path.is_file())
    params = bundle_lib.read(folder, 'latest').params
    return {
      'perplexity': scores['perplexity'],
      'bytes': sum(path.stat().st_size for path in files),
      'zeros': pruning.sparsity(params),
      **self.writing(folder, 'float32'),
    }

  def writing(self, folder: pathlib.Path, weights: str) -> tables.Row:
    """New tokens of one row per second, the median of some generations."""
    import numpy as np

    from rnn_jax.inference import generate
    from rnn_jax.inference import sampling
    from rnn_jax.training.memory import batch_size

    generator = generate.Generator.from_workdir(folder, 'latest', weights)
    options = generate.Options(
      max_new_tokens=self.new_tokens,
      sampling=sampling.Sampling(temperature=0),
      stop_at_boundary=False,
    )
    prompt = [np.array([generator.tokenizer.boundary], np.int32)]
    rates = [
      generator.generate(prompt, options).timing.tokens_per_second
      for _ in range(1 + self.repeats)
    ]
    return {
      'held_bytes': batch_size.tree_bytes(generator.params),
      'tokens_per_second': statistics.median(rates[1:]),  # the first compiles
    }


def _at_once(job, trained):
  """8 bits, and the same share of zeros per layer."""
  import jax

  from rnn_jax.models import int8_weights

  packed = int8_weights.pack(jax.device_put(trained.params))
  eighth = dataclasses.replace(trained, params=jax.device_get(packed))
  folder = job.write(eighth)
  yield PACKED, (values := job.measure_folder(folder))
  yield f'{PACKED}, held so', values | job.writing(folder, 'int8')
  training = dataclasses.replace(trained.config.train, quantized='int8')
  config = dataclasses.replace(trained.config, train=training)
  both = dataclasses.replace(eighth, config=config)
  yield '8 bits: matrices and activations', job.measure(both)
  yield from _pruned(job, trained, 'layer', 'zeros')


def _globally(job, trained):
  yield from _pruned(job, trained, 'global', 'zeros, global')


def _pruned(job, trained, scope, label):
  import jax

  from rnn_jax.training import pruning

  for share in SHARES:
    params = pruning.prune(jax.device_put(trained.params), share, scope)
    pruned = dataclasses.replace(trained, params=jax.device_get(params))
    yield f'{share:.0%} {label}, at once', job.measure(pruned)
    # The share that the zeros have from the start: nothing more is pruned.
    later = job.train_on(pruned, {'sparsity': 1e-6, 'end_step': 1})
    yield f'{share:.0%} {label}, trained on', job.measure(later)


def _gradually(job, trained):
  """As many steps as after pruning at once; a third of them with all zeros."""
  schedule = {
    'end_step': max(1, 2 * job.more_steps // 3),
    'every': max(1, job.more_steps // 30),
  }
  for share in SHARES:
    later = job.train_on(trained, schedule | {'sparsity': share})
    yield f'{share:.0%} zeros, gradual', job.measure(later)


def _distilled(job, trained):
  """A student of half the width, by itself and with the model as teacher."""
  for name, teacher in (
    ('student alone', ''),
    ('student with its teacher', str(job.teacher)),
  ):
    raw = job.raw.copy_and_resolve_references()
    for section, key in (
      ('model', 'width'),
      ('model', 'mlp_width'),
      ('cell', 'value_width'),
    ):
      raw[section][key] //= 2
    raw.distillation.teacher = teacher
    yield name, job.measure(train(raw, job.new_folder(), 'best'))


WAYS = {  # each yields (name, what was measured)
  'stdlib_bytes': _at_once,
  'stdlib_bytes, global': _globally,
  'stdlib_bytes, gradual': _gradually,
  'stdlib_bytes, distilled': _distilled,
}
HEAD = (
  'model | zeros in matrices | perplexity | change | parameters on the disk | '
  'times smaller | held while writing | tokens/s'
)
SLOW = 0.5  # of the rate of models of as many bytes: something else ran


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table for each way: what it costs and what it saves."""
  yield tables.provenance(rows)
  for name, row in rows.items():
    if 'variants' in row:
      yield f'**{name}**'
      yield tables.table(HEAD, _lines(row))
  yield from tables.failures(rows)
  yield tables.unmeasured(cases(False), rows)


def _lines(row):
  variants = row['variants']
  whole = variants['float32']
  for name, values in variants.items():
    # Before rows said what their bytes are of, these held the optimizer too.
    known = 'bytes_of' in row or not name.endswith('trained on')
    yield [
      name,
      f'{values["zeros"]:.1%}',
      f'{values["perplexity"]:.4f}',
      f'{values["perplexity"] / whole["perplexity"] - 1:+.2%}',
      f'{values["bytes"]:,} bytes' if known else '-',
      f'{whole["bytes"] / values["bytes"]:.2f}' if known else '-',
      f'{values["held_bytes"]:,} bytes',
      _rate(values, variants),
    ]


def _rate(values, variants):
  """Tokens per second; marked where models of as many bytes are far faster."""
  rates = [
    other['tokens_per_second']
    for other in variants.values()
    if other['held_bytes'] == values['held_bytes']
  ]
  own = values['tokens_per_second']
  slow = own < SLOW * statistics.median(rates)
  return tables.rate(own) + (' (disturbed)' if slow else '')
