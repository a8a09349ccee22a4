"""Compressed models: perplexity, bytes on the disk, tokens per second.

configs/stdlib_bytes.py is trained once, then compressed in each way. The models
write in turns in one process; in every round the whole model writes first and
last, and how these two differ is the noise floor.

  python -m benchmarks.run --suite=compression     1 hour on 2 cores
"""

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import ratios
from benchmarks.harness import tables

QUICK = {'steps': 4, 'more_steps': 4, 'new_tokens': 8, 'small': True}
SHARES = (0.5, 0.75, 0.9)
WHOLE = 'float32'
LAST = 'float32, last'
ROUNDS = 30


def cases(quick: bool) -> list[case.Case]:
  """One model, compressed in each way."""
  return [
    case.Case(
      'stdlib_bytes',
      'suites.compression.variants',
      QUICK if quick else {},
      ROUNDS,
      timeout=4 * 3600.0,
    )
  ]


def variants(
  repeats: int,
  steps: int = 1500,
  more_steps: int = 300,
  new_tokens: int = 400,
  small: bool = False,
) -> tables.Row:
  """Trains the model, compresses it, and measures each variant.

  Args:
    repeats: rounds in which each variant writes once.
    steps: of training, of a student too.
    more_steps: of training after or under pruning, at a tenth of the rate.
    new_tokens: of a text that a variant writes.
    small: whether the model is a tiny one, for a rehearsal.

  Returns:
    {'variants': {name: {**scores(), **write_in_turns()}}, 'noise': ..., ...}
  """
  with tempfile.TemporaryDirectory() as folder:
    raw = raw_config(steps, small)
    job = Job(pathlib.Path(folder), raw, more_steps)
    trained = train(raw, job.teacher, 'best')
    made = {WHOLE: Made(job.write(trained))}
    for way in WAYS:
      made.update(way(job, trained))
    found = {x: scores(x) for x in {one.folder for one in made.values()}}
    rates, noise = write_in_turns(made, repeats, new_tokens)
  return {
    'variants': {
      name: found[one.folder] | rates[name] for name, one in made.items()
    },
    'steps': steps,
    'more_steps': more_steps,
    'noise': noise,
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
    raw.data.update(length=32, segment_tokens=512, splits=(98, 1, 1))
  return raw


def train(raw: Any, folder: pathlib.Path, which: str) -> Any:
  """Trains a config in a work folder. Returns its bundle `which`."""
  from rnn_jax import config as config_lib
  from rnn_jax.runs import bundle as bundle_lib
  from rnn_jax.training import loop

  loop.train(config_lib.parse(raw), str(folder))
  return bundle_lib.read(folder, which)


class Made(NamedTuple):
  """A work folder that holds one variant, and the weights it writes with."""

  folder: pathlib.Path
  weights: str = 'float32'


def scores(folder: pathlib.Path) -> tables.Row:
  """Perplexity, share of zeros, and bytes of a checkpoint's parameters."""
  from rnn_jax.runs import bundle as bundle_lib
  from rnn_jax.training import evaluate
  from rnn_jax.training import pruning

  run = evaluate.Run.open(str(folder), 'latest')
  found = evaluate.evaluate_run(run, 'validation')
  (state,) = (*folder.glob('checkpoints/*/state'), *folder.glob('weights'))
  files = (path for path in state.rglob('*') if path.is_file())
  params = bundle_lib.read(folder, 'latest').params
  return {
    'perplexity': found['perplexity'],
    'bytes': sum(path.stat().st_size for path in files),
    'zeros': pruning.sparsity(params),
  }


def write_in_turns(
  made: Mapping[str, Made], rounds: int, new_tokens: int
) -> tuple[dict[str, tables.Row], float]:
  """How fast each variant writes one row, greedily.

  Returns:
    ({name: row}, the noise floor). A row has `held_bytes` of the parameters
    meanwhile, the median `tokens_per_second`, and the `ratio` of its time to
    that of WHOLE with the ends of its interval, `ratio_low` and `ratio_high`.
  """
  from rnn_jax.inference import generate
  from rnn_jax.training.memory import batch_size

  generators = {
    name: generate.Generator.from_workdir(one.folder, 'latest', one.weights)
    for name, one in made.items()
  }
  turns = [*generators.items(), (LAST, generators[WHOLE])]
  seconds = {name: [] for name, _ in turns}
  for number in range(1 + rounds):
    for name, generator in turns:
      taken = _seconds(generator, new_tokens)
      if number:  # the first compiles
        seconds[name].append(taken)
  rates = {}
  for name, generator in generators.items():
    ratio = ratios.of(seconds[name], seconds[WHOLE])
    rates[name] = {
      'held_bytes': batch_size.tree_bytes(generator.params),
      'tokens_per_second': new_tokens / statistics.median(seconds[name]),
      'ratio': ratio.ratio,
      'ratio_low': ratio.low,
      'ratio_high': ratio.high,
    }
  return rates, ratios.of(seconds[LAST], seconds[WHOLE]).floor


def _seconds(generator, new_tokens):
  import numpy as np

  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling

  options = generate.Options(
    max_new_tokens=new_tokens,
    sampling=sampling.Sampling(temperature=0),
    stop_at_boundary=False,
  )
  prompt = [np.array([generator.tokenizer.boundary], np.int32)]
  return measure.seconds(lambda: generator.generate(prompt, options))


@dataclasses.dataclass(frozen=True)
class Job:
  """Where models are, and how they are trained."""

  root: pathlib.Path
  raw: Any  # the config of the model that is compressed
  more_steps: int

  @property
  def teacher(self) -> pathlib.Path:
    """The work folder of the model that is compressed."""
    return self.root / 'run'

  def new_folder(self) -> pathlib.Path:
    """A work folder that doesn't exist yet."""
    return pathlib.Path(tempfile.mkdtemp(dir=self.root)) / 'model'

  def write(self, bundle: Any, weights: str = '') -> pathlib.Path:
    """Writes a bundle, only its parameters. Returns the new work folder.

    Args:
      bundle: the model.
      weights: as of runs.bundle.write.
    """
    from rnn_jax.runs import bundle as bundle_lib

    folder = self.new_folder()
    bundle_lib.write(bundle, folder, weights)
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


Variants = Iterator[tuple[str, Made]]


def in_8_bits(job: Job, trained: Any) -> Variants:
  """Matrices in 8 bits; held so while writing; with activations in 8 bits."""
  import jax

  from rnn_jax.models import packed_weights

  packed = packed_weights.panels(jax.device_put(trained.params), 'int8')
  eighth = dataclasses.replace(trained, params=jax.device_get(packed))
  folder = job.write(eighth, 'int8')
  yield '8 bits: matrices', Made(folder)
  yield '8 bits: matrices, held so', Made(folder, 'int8')
  training = dataclasses.replace(trained.config.train, quantized='int8')
  config = dataclasses.replace(trained.config, train=training)
  both = dataclasses.replace(eighth, config=config)
  yield '8 bits: matrices and activations', Made(job.write(both, 'int8'))


def pruned_at_once(job: Job, trained: Any) -> Variants:
  """SHARES of zeros in each matrix or of all, without and with training."""
  import jax

  from rnn_jax.training import pruning

  for scope, label in (('layer', 'zeros'), ('global', 'zeros, global')):
    for share in SHARES:
      params = pruning.prune(jax.device_put(trained.params), share, scope)
      pruned = dataclasses.replace(trained, params=jax.device_get(params))
      yield f'{share:.0%} {label}, at once', Made(job.write(pruned))
      # The share that the zeros have from the start: nothing more is pruned.
      later = job.train_on(pruned, {'sparsity': 1e-6, 'end_step': 1})
      yield f'{share:.0%} {label}, trained on', Made(job.write(later))


def pruned_gradually(job: Job, trained: Any) -> Variants:
  """As many steps as after pruning at once; a third of them with all zeros."""
  schedule = {
    'end_step': max(1, 2 * job.more_steps // 3),
    'every': max(1, job.more_steps // 30),
  }
  for share in SHARES:
    later = job.train_on(trained, schedule | {'sparsity': share})
    yield f'{share:.0%} zeros, gradual', Made(job.write(later))


def distilled(job: Job, trained: Any) -> Variants:
  """A student of half the width, by itself and with the model as teacher."""
  del trained  # the teacher, which is read from its work folder
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
    student = train(raw, job.new_folder(), 'best')
    yield name, Made(job.write(student))


WAYS = in_8_bits, pruned_at_once, pruned_gradually, distilled
HEAD = (
  'model | zeros in matrices | perplexity | change | parameters on the disk | '
  'times smaller | held while writing | tokens/s | time relative to float32'
)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """What each way costs and what it saves."""
  for row in rows.values():
    if 'variants' in row:
      yield (
        f'Noise floor: {100 * row["noise"]:.1f} %, how far the first and the '
        'last turn of the whole model in a round differ.'
      )
      yield tables.table(HEAD, _lines(row))


def _lines(row):
  whole = row['variants'][WHOLE]
  for name, values in row['variants'].items():
    low, high = (tables.digits(values[end]) for end in tables.ENDS)
    yield [
      name,
      f'{values["zeros"]:.1%}',
      f'{values["perplexity"]:.4f}',
      f'{values["perplexity"] / whole["perplexity"] - 1:+.2%}',
      f'{values["bytes"]:,} bytes',
      f'{whole["bytes"] / values["bytes"]:.2f}',
      f'{values["held_bytes"]:,} bytes',
      tables.rate(values['tokens_per_second']),
      f'{tables.times(values["ratio"])} ({low} to {high})',
    ]
