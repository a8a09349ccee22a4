"""A training run of ours, and the same one with PyTorch on the authors' model.

Both begin with the same weights, which our importer reads from the folder that
theirs writes, and both get the batches of our data pipeline. Ours is a run of
`rnn_jax/training/loop.py` from a config. Theirs has the model's own loss with
`labels`, torch.optim.AdamW, torch.nn.utils.clip_grad_norm_ and PyTorch's
schedulers.

Gradients and weights of theirs are compared in our layout, into which the
importer places them too.
"""

import dataclasses
import json
import pathlib
import pydoc_data.topics
import random
import re
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import numpy as np
import optax
import torch

from benchmarks.workloads import pretrained
from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import request
from rnn_jax.interop.formats import hf
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import loop
from rnn_jax.training import trainer as trainer_lib

PyTree = Any
FLA = 'gated_deltanet', 'delta_net', 'gla', 'rwkv7'  # of fla_models.py
IGNORED = -100  # PyTorch's label of what isn't predicted
VECTORS = (  # a number for each channel or head, whatever their axes
  'A_log',
  'r_k',
  'recurrent_gate_bias',
  'input_gate_bias',
)
# Matrices of ours that `optimizer.weight_decay` leaves out: they make gates.
GATES = {
  'gla': '.*/gate_up',
  'rwkv7': '.*/up_.*',
  'KimiLinear': '.*/(decay|output_gate)_up',
}
VOCABULARY = tokenizer_lib.Bytes().size


@dataclasses.dataclass(frozen=True)
class Constants:
  """What a run is made of besides its model, for both sides."""

  steps: int = 300
  warmup: int = 30
  rate: float = 1e-3
  last_rate: float = 1e-4
  b1: float = 0.9
  b2: float = 0.99
  eps: float = 1e-8
  decay: float = 0.1
  clip: float = 1.0
  rows: int = 4
  length: int = 48
  slices: int = 1
  decays_embeddings: bool = False
  task: str = 'language_modeling'
  seed: int = 0


class Run(NamedTuple):
  """What a run did.

  Attributes:
    losses: of each step, in nats per predicted token.
    norms: of each step's gradient, before the clip.
    gradient: of the first step, before the clip, in our layout.
    weights: after the last step, in our layout.
  """

  losses: np.ndarray
  norms: np.ndarray
  gradient: PyTree
  weights: PyTree


def compared(
  kind: str, sizes: dict[str, Any], constants: Constants, folder: pathlib.Path
) -> dict[str, Any]:
  """How far a run of ours is from theirs.

  Args:
    kind: the model's class in transformers, or a model_type of fla.
    sizes: keys of its config.json.
    constants: of both runs.
    folder: an empty one, for models and data.

  Returns:
    `loss_difference`, the largest of all steps, in nats; `norm_difference`, the
    largest of all steps' gradient norms, relative to theirs;
    `gradient_difference` of the first step, relative to its norm;
    `weights_difference` at the end, relative to the norm of their change; and
    losses and the number of `weights`.
  """
  torch.set_num_threads(1)  # tensors are too small to be shared
  model = _make(kind, sizes, folder / 'start')
  bundle = _read(folder / 'start', _config(kind, constants, folder))
  batches, ours = _train_ours(bundle, constants, folder / 'run')
  theirs = _train_theirs(model, batches, constants, folder)
  changed = _minus(theirs.weights, bundle.params)
  last = slice(-20, None)
  return {
    'rate': constants.rate,
    'loss_difference': _largest(ours.losses - theirs.losses),
    'norm_difference': _largest(ours.norms / theirs.norms - 1),
    'gradient_difference': _norm(_minus(ours.gradient, theirs.gradient))
    / _norm(theirs.gradient),
    'weights_difference': _norm(_minus(ours.weights, theirs.weights))
    / _norm(changed),
    'median_norm': float(np.median(theirs.norms)),
    'clipped': float(np.mean(theirs.norms > constants.clip)),
    'first_loss': float(theirs.losses[0]),
    'last_loss': float(np.mean(theirs.losses[last])),
    'padding': float(np.mean([np.mean(b.weights_BxL == 0) for b in batches])),
    'weights': sum(x.numel() for x in model.parameters()),
  }


def _make(kind, sizes, folder):
  """Writes a model of random weights; returns it."""
  if kind not in FLA:
    model = pretrained.write(kind, {'vocab_size': VOCABULARY} | sizes, folder)
    return model.train()
  from benchmarks.workloads import fla_models

  torch.manual_seed(0)
  keys = {'model_type': kind, 'vocab_size': VOCABULARY} | sizes
  model = fla_models.Model(keys)
  model.save_pretrained(folder)
  return model


def _config(kind, constants, folder):
  """The config of our run, all but its model."""
  raw = config_lib.default(source='jsonl', layout='padded')
  raw.data.length_multiple = constants.length  # one shape, one program
  path = folder / 'documents.jsonl'
  path.write_text('\n'.join(map(json.dumps, _documents(constants))))
  raw.task.name = constants.task
  raw.data.update(path=str(path), splits=(100, 0, 0), tokenizer='bytes')
  raw.data.update(length=constants.length, batch_size=constants.rows)
  raw.optimizer.update(
    learning_rate=constants.rate, b1=constants.b1, b2=constants.b2
  )
  raw.optimizer.update(
    eps=constants.eps,
    weight_decay=constants.decay,
    clip_norm=constants.clip,
  )
  matrices = [GATES[kind]] if kind in GATES else []
  if constants.decays_embeddings:
    matrices.append('embedding/.*')
  raw.optimizer.weight_decays = [[x, constants.decay] for x in matrices]
  raw.schedule.update(
    name='cosine',
    warmup_steps=constants.warmup,
    final_learning_rate=constants.last_rate,
  )
  raw.train.update(
    steps=constants.steps,
    accumulate=constants.slices,
    checkpoint_every=constants.steps,
    log_every=constants.steps,
    seed=constants.seed,
    compiler='fast_compile',
  )
  raw.evaluate.every, raw.sample.new_tokens = 0, 0
  raw.metrics.writers = ('jsonl',)
  return config_lib.parse(raw)


def _documents(constants):
  """Python's own manual in sentences, most shorter than a row."""
  text = ' '.join(pydoc_data.topics.topics.values())
  found = re.split(r'(?<=[.:])\s+', text)
  chosen = [' '.join(x.split()) for x in found if len(x) > 15 and x.isascii()]
  random.Random(constants.seed).shuffle(chosen)
  if constants.task == 'dialogue':
    return [
      {'turns': [a[: constants.length // 3], b[: constants.length // 3]]}
      for a, b in zip(chosen[::2], chosen[1::2], strict=False)
    ]
  return [{'text': x[: constants.length]} for x in chosen]


def _read(folder, config):
  bundle = hf.read(request.Source(folder, config, tokenizer_lib.Bytes()))
  raw = config_lib.to_dict(bundle.config)
  if raw['model']['experts']['count']:
    # Theirs is added only if asked for.
    raw['model']['experts']['balance'] = 0.0
  config = config_lib.parse(raw)
  return dataclasses.replace(bundle, config=config)


def _train_ours(
  bundle: bundle_lib.Bundle, constants: Constants, workdir: pathlib.Path
) -> tuple[list[batch_lib.Batch], Run]:
  """Trains from the bundle's weights; returns the batches and the Run."""
  bundle_lib.write(bundle, workdir)
  batches, losses, norms, gradients, weights = [], [], [], [], []

  def record(trainer: trainer_lib.Trainer) -> None:
    batch = jax.tree.map(np.asarray, trainer.batch)
    metrics = jax.device_get(trainer.metrics)
    batches.append(batch)
    losses.append(float(metrics['sums']['loss'] / metrics['sums']['weight']))
    norms.append(float(metrics['gradient_norm']))
    if trainer.step == 1:
      gradients.append(_first_gradient(trainer, constants))
    if trainer.at_last_step:
      weights.append(jax.device_get(trainer.state.params))

  loop.train(bundle.config, workdir, [record])
  return batches, Run(
    np.array(losses), np.array(norms), gradients[0], weights[0]
  )


def _first_gradient(trainer, constants):
  """The gradient of step 1, which Adam's first moment has clipped."""
  norm = float(trainer.metrics['gradient_norm'])
  clipped = min(1.0, constants.clip / norm) * (1 - constants.b1)
  moment = optax.tree.get(trainer.state.opt_state, 'mu')
  return jax.tree.map(lambda x: np.asarray(x) / clipped, moment)


def _train_theirs(
  model: torch.nn.Module,
  batches: Sequence[batch_lib.Batch],
  constants: Constants,
  folder: pathlib.Path,
) -> Run:
  """Trains the authors' model on the same batches."""
  optimizer = torch.optim.AdamW(
    _groups(model, constants),
    constants.rate,
    (constants.b1, constants.b2),
    constants.eps,
  )
  schedule = _schedule(optimizer, constants)
  losses, norms, gradient = [], [], None
  with pretrained.plain_functions():
    for batch in batches:
      optimizer.zero_grad()
      losses.append(_backward(model, batch, constants.slices))
      if gradient is None:
        gradient = _in_our_layout(model, folder / 'gradient', 'grad')
      norms.append(
        torch.nn.utils.clip_grad_norm_(model.parameters(), constants.clip)
      )
      optimizer.step()
      schedule.step()
  weights = _in_our_layout(model, folder / 'end', 'data')
  return Run(np.array(losses), np.array(norms), gradient, weights)


def _backward(model, batch, slices):
  """Adds up the gradients of a batch's mean loss; returns that."""
  count, total = int((batch.weights_BxL > 0).sum()), 0.0
  rows = len(batch.weights_BxL) // slices
  for n in range(slices):
    part = slice(n * rows, (n + 1) * rows)
    own = batch_lib.Batch(*(x[part] for x in batch[:4]))
    loss = model(**_arguments(own), num_items_in_batch=count).loss
    loss.backward()
    total += loss.item()
  return total


def _arguments(batch):
  """A batch as models of transformers take it: their losses shift labels."""
  weights = batch.weights_BxL > 0
  last = np.where(weights[:, -1:], batch.targets_BxL[:, -1:], 0)
  ids = np.concatenate([batch.tokens_BxL, last], 1)
  labels = np.where(weights, batch.targets_BxL, IGNORED)
  labels = np.pad(labels, ((0, 0), (1, 0)), constant_values=IGNORED)
  steps = np.arange(ids.shape[1])
  lengths = np.max((labels != IGNORED) * steps, 1, keepdims=True)
  given = {
    'input_ids': ids,
    'labels': labels,
    'attention_mask': steps <= lengths,
  }
  return {k: torch.from_numpy(x.astype(np.int64)) for k, x in given.items()}


def _groups(model, constants):
  """Matrices, which decay, and all other parameters."""
  decayed, others = [], []
  for name, x in model.named_parameters():
    module = model.get_submodule(name.rpartition('.')[0])
    own = name.rpartition('.')[2]
    if isinstance(module, torch.nn.Embedding):
      decays = constants.decays_embeddings
    elif isinstance(module, torch.nn.Conv1d):
      decays = False
    else:
      decays = own not in VECTORS and min(x.shape) > 1 and x.ndim > 1
    (decayed if decays else others).append(x)
  return [
    {'params': decayed, 'weight_decay': constants.decay},
    {'params': others, 'weight_decay': 0.0},
  ]


def _schedule(optimizer, constants):
  """A linear warm-up that ends at the peak, then half a cosine."""
  lr = torch.optim.lr_scheduler
  warmup = constants.warmup
  rise = lr.LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1)
  fall = lr.CosineAnnealingLR(
    optimizer, constants.steps - warmup, constants.last_rate
  )
  return lr.SequentialLR(optimizer, [rise, fall], [warmup])


def _in_our_layout(model, folder, which):
  """Their weights ('data') or gradients ('grad') as a tree like our weights."""
  tensors = [*model.parameters(), *model.buffers()]
  held = [x.data for x in tensors]
  for x in tensors:
    value = getattr(x, which)
    x.data = torch.zeros_like(x) if value is None else value.clone()
  model.save_pretrained(folder)
  for x, value in zip(tensors, held, strict=True):
    x.data = value
  return hf.read(request.Source(folder, tokenizer=tokenizer_lib.Bytes())).params


def _minus(a, b):
  return jax.tree.map(np.subtract, a, b)


def _norm(tree):
  leaves = jax.tree.leaves(tree)
  return float(
    np.sqrt(sum(np.sum(np.square(x, dtype=np.float64)) for x in leaves))
  )


def _largest(x):
  return float(np.abs(x).max())
