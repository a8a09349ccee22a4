"""What compression makes of a trained model: loss, bytes and speed."""

import dataclasses
import pathlib
import statistics
import tempfile

import jax
import numpy as np

from configs import stdlib_bytes
from rnn_jax import config as config_lib
from rnn_jax.exchange import bundle as bundle_lib
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from rnn_jax.training import memory
from rnn_jax.training import pruning
from rnn_jax.training import quantized

SHARES = (0.5, 0.75, 0.9)
PACKED = '8 bits: matrices'


def variants(repeats, steps=1500, more_steps=300, new_tokens=400, small=False):
  """Trains configs/stdlib_bytes.py once, compresses it, and measures each.

  Args:
    repeats: generations that are timed.
    steps: of training.
    more_steps: of training behind pruning, at a tenth of the rate.
    new_tokens: of a generation.
    small: whether the model is a tiny one, for a rehearsal.

  Returns:
    {'variants': {name: {'perplexity', 'bytes', 'zeros', 'held_bytes',
    'tokens_per_second'}}}, where `held_bytes` are those of the parameters while
    writing.
  """
  raw = _config(steps, small)
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    loop.train(config_lib.parse(raw), str(root / 'run'))
    trained = bundle_lib.read(root / 'run', 'best')
    found = {}
    for number, (name, bundle) in enumerate(_compressed(trained)):
      at = root / str(number)
      bundle_lib.write(bundle, at)
      found[name] = _measure(at, repeats, new_tokens)
      if name == PACKED:
        held = _writing(at, repeats, new_tokens, 'int8')
        found[f'{name}, held so'] = found[name] | held
      if 'at once' in name:
        _train_on(raw, at, more_steps)
        later = name.replace('at once', 'trained on')
        found[later] = _measure(at, repeats, new_tokens)
  return {'variants': found, 'steps': steps, 'more_steps': more_steps}


def _config(steps, small):
  raw = stdlib_bytes.get_config()
  raw.train.update(steps=steps, checkpoint_every=steps)
  raw.evaluate.every = 0
  raw.schedule.warmup_steps = min(100, steps // 2)
  if small:
    raw.model.update(layers=1, width=16, mlp_width=16)
    raw.data.update(length=32, stretch=512, splits=(98, 1, 1))
  return raw


def _compressed(trained):
  """Yields (name, bundle)."""
  yield 'float32', trained
  packed = quantized.pack(jax.device_put(trained.params))
  eighth = dataclasses.replace(trained, params=jax.device_get(packed))
  yield PACKED, eighth
  train = dataclasses.replace(trained.config.train, quantized='int8')
  config = dataclasses.replace(trained.config, train=train)
  yield (
    '8 bits: matrices and activations',
    dataclasses.replace(eighth, config=config),
  )
  for share in SHARES:
    params = pruning.prune(jax.device_put(trained.params), share, 'layer')
    pruned = dataclasses.replace(trained, params=jax.device_get(params))
    yield f'{share:.0%} zeros, at once', pruned


def _train_on(raw, folder, steps):
  """Trains a pruned model, whose zeros stay."""
  raw = raw.copy_and_resolve_references()
  rate = raw.optimizer.learning_rate / 10
  raw.optimizer.learning_rate = rate
  raw.schedule.update(warmup_steps=0, final_learning_rate=rate / 10)
  raw.train.update(steps=steps, checkpoint_every=steps)
  # The share that the zeros have from the start: nothing more is pruned.
  raw.pruning.update(sparsity=1e-6, end_step=1)
  loop.train(config_lib.parse(raw), str(folder))


def _measure(folder, repeats, new_tokens):
  run = evaluate.Run.open(str(folder), 'latest')
  scores = evaluate.evaluate_run(run, 'validation')
  states = sorted((folder / 'checkpoints').glob('*/state'))
  files = (path for path in states[-1].rglob('*') if path.is_file())
  params = bundle_lib.read(folder, 'latest').params
  return {
    'perplexity': scores['perplexity'],
    'bytes': sum(path.stat().st_size for path in files),
    'zeros': pruning.sparsity(params),
    **_writing(folder, repeats, new_tokens, 'float32'),
  }


def _writing(folder, repeats, new_tokens, weights):
  """New tokens of one row a second, the median of some generations."""
  generator = generate.Generator.from_workdir(folder, 'latest', weights)
  options = generate.Options(
    max_new_tokens=new_tokens,
    sampling=sampling.Sampling(temperature=0),
    stop_at_boundary=False,
  )
  prompt = [np.array([generator.tokenizer.boundary], np.int32)]
  generator.generate(prompt, options)
  rates = [
    generator.generate(prompt, options).timing.tokens_per_second
    for _ in range(repeats)
  ]
  return {
    'held_bytes': memory.tree_bytes(generator.params),
    'tokens_per_second': statistics.median(rates),
  }
