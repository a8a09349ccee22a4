"""What compression makes of a trained model: loss, bytes and speed."""

import dataclasses
import pathlib
import statistics
import tempfile

import jax
import numpy as np

from configs import stdlib_bytes
from rnn_jax import config as config_lib
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.training import bundle as bundle_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from rnn_jax.training import memory
from rnn_jax.training import pruning
from rnn_jax.training import quantized

SHARES = (0.5, 0.75, 0.9)
PACKED = '8 bits: matrices'


def variants(
  repeats,
  ways='at_once',
  steps=1500,
  more_steps=300,
  new_tokens=400,
  small=False,
):
  """Trains configs/stdlib_bytes.py once, compresses it, and measures each.

  Args:
    repeats: generations that are timed.
    ways: one of WAYS.
    steps: of training, of a student too.
    more_steps: of training behind or under pruning, at a tenth of the rate.
    new_tokens: of a generation.
    small: whether the model is a tiny one, for a rehearsal.

  Returns:
    {'variants': {name: {'perplexity', 'bytes', 'zeros', 'held_bytes',
    'tokens_per_second'}}}, where `bytes` are those of a checkpoint of the
    parameters alone and `held_bytes` those of the parameters while writing.
  """
  raw = _config(steps, small)
  with tempfile.TemporaryDirectory() as folder:
    job = Job(pathlib.Path(folder), raw, more_steps, repeats, new_tokens)
    found = dict(WAYS[ways](job, job.begin()))
  return {
    'variants': found,
    'steps': steps,
    'more_steps': more_steps,
    'bytes_of': 'parameters',
  }


def _config(steps, small):
  raw = stdlib_bytes.get_config()
  raw.train.update(steps=steps, checkpoint_every=steps)
  raw.evaluate.every = 0
  raw.schedule.warmup_steps = min(100, steps // 2)
  if small:
    raw.model.update(layers=1, width=16, mlp_width=16)
    raw.data.update(length=32, stretch=512, splits=(98, 1, 1))
  return raw


@dataclasses.dataclass(frozen=True)
class Job:
  """Where models lie, and how they are trained and measured."""

  root: pathlib.Path
  raw: object  # the config of the model that is compressed
  more_steps: int
  repeats: int
  new_tokens: int

  @property
  def teacher(self):
    """The work folder of the model that is compressed."""
    return self.root / 'run'

  def begin(self):
    """Trains that model. Returns its bundle."""
    loop.train(config_lib.parse(self.raw), str(self.teacher))
    return bundle_lib.read(self.teacher, 'best')

  def write(self, bundle):
    """Returns the new work folder of a bundle: parameters alone."""
    at = pathlib.Path(tempfile.mkdtemp(dir=self.root)) / 'model'
    bundle_lib.write(bundle, at)
    return at

  def train_on(self, bundle, changes):
    """The bundle after `more_steps`, with those keys of section `pruning`."""
    raw = self.raw.copy_and_resolve_references()
    rate = raw.optimizer.learning_rate / 10
    raw.optimizer.learning_rate = rate
    raw.schedule.update(warmup_steps=0, final_learning_rate=rate / 10)
    raw.train.update(steps=self.more_steps, checkpoint_every=self.more_steps)
    raw.pruning.update(changes)
    folder = self.write(bundle)
    loop.train(config_lib.parse(raw), str(folder))
    return bundle_lib.read(folder, 'latest')

  def measure(self, bundle):
    """What a row tells of a bundle."""
    return self.measure_folder(self.write(bundle))

  def measure_folder(self, folder):
    """The same of one that `write` has made."""
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

  def writing(self, folder, weights):
    """New tokens of one row a second, the median of some generations."""
    generator = generate.Generator.from_workdir(folder, 'latest', weights)
    options = generate.Options(
      max_new_tokens=self.new_tokens,
      sampling=sampling.Sampling(temperature=0),
      stop_at_boundary=False,
    )
    prompt = [np.array([generator.tokenizer.boundary], np.int32)]
    generator.generate(prompt, options)
    rates = [
      generator.generate(prompt, options).timing.tokens_per_second
      for _ in range(self.repeats)
    ]
    return {
      'held_bytes': memory.tree_bytes(generator.params),
      'tokens_per_second': statistics.median(rates),
    }


def _at_once(job, trained):
  """Yields (name, what was measured): 8 bits, and the same share a layer."""
  yield 'float32', job.measure(trained)
  packed = quantized.pack(jax.device_put(trained.params))
  eighth = dataclasses.replace(trained, params=jax.device_get(packed))
  folder = job.write(eighth)
  yield PACKED, (values := job.measure_folder(folder))
  yield f'{PACKED}, held so', values | job.writing(folder, 'int8')
  train = dataclasses.replace(trained.config.train, quantized='int8')
  config = dataclasses.replace(trained.config, train=train)
  both = dataclasses.replace(eighth, config=config)
  yield '8 bits: matrices and activations', job.measure(both)
  yield from _pruned(job, trained, 'layer', 'zeros')


def _globally(job, trained):
  yield 'float32', job.measure(trained)
  yield from _pruned(job, trained, 'global', 'zeros, global')


def _pruned(job, trained, scope, told):
  for share in SHARES:
    params = pruning.prune(jax.device_put(trained.params), share, scope)
    pruned = dataclasses.replace(trained, params=jax.device_get(params))
    yield f'{share:.0%} {told}, at once', job.measure(pruned)
    # The share that the zeros have from the start: nothing more is pruned.
    later = job.train_on(pruned, {'sparsity': 1e-6, 'end_step': 1})
    yield f'{share:.0%} {told}, trained on', job.measure(later)


def _gradually(job, trained):
  """As many steps as behind pruning at once; a third of them with all zeros."""
  yield 'float32', job.measure(trained)
  schedule = {
    'end_step': max(1, 2 * job.more_steps // 3),
    'every': max(1, job.more_steps // 30),
  }
  for share in SHARES:
    later = job.train_on(trained, schedule | {'sparsity': share})
    yield f'{share:.0%} zeros, gradual', job.measure(later)


def _distilled(job, trained):
  """A student of half the width, by itself and with the model as teacher."""
  yield 'float32', job.measure(trained)
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
    folder = pathlib.Path(tempfile.mkdtemp(dir=job.root))
    loop.train(config_lib.parse(raw), str(folder))
    yield name, job.measure(bundle_lib.read(folder, 'best'))


WAYS = {
  'at_once': _at_once,
  'global': _globally,
  'gradual': _gradually,
  'distilled': _distilled,
}
