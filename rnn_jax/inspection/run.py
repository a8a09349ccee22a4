"""Inspects a run's checkpoint on a few batches.

It uses one device, whatever mesh the run had: the numbers are the same. The run
doesn't change. Rows begin with a zero state, even if data.carry_state carries
one over in training.
"""

import contextlib
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import compression as config_compression
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.inspection import activations
from rnn_jax.inspection import anatomy
from rnn_jax.inspection import curves
from rnn_jax.inspection import flow
from rnn_jax.inspection import gradients
from rnn_jax.inspection import report
from rnn_jax.inspection import summary
from rnn_jax.runs import bundle
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.training import evaluate
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import schedule as schedule_lib
from rnn_jax.training import train_state
from rnn_jax.training.memory import lower_bound

# What the next update depends on besides the parameters.
REST = 'opt_state', 'loss_scale', 'step', 'rate_scale', 'key'


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run as it is on disk, with a checkpoint's train state."""

  config: config_lib.Config
  corpus: corpus_lib.Corpus
  programs: programs_lib.Programs
  state: train_state.TrainState
  step: int

  @classmethod
  def open(
    cls, workdir: str | os.PathLike, which: checkpoint.Which = 'best'
  ) -> 'Run':
    """Restores a run's 'best' or 'latest' checkpoint, or that of a step.

    A model that was put there (runs/bundle.py) is at step 0.

    Raises:
      InputError: the run, the checkpoint or the data is missing, or the run has
        adapters or members.
    """
    config = plain(config_lib.parse(workdir_lib.load_config(workdir)))
    lower_bound.check(config)
    if config.adapters.rank:
      errors.refuse(
        'adapters.rank',
        config.adapters.rank,
        'a run with adapters is not inspected; inspect the run whose model '
        'they change',
      )
    if (members := getattr(config.task, 'members', 1)) > 1:
      errors.refuse(
        'task.members',
        members,
        'an ensemble is not inspected: train one of its models, with 1',
      )
    corpus = corpus_lib.Corpus.open(config, workdir, accept_new_data=True)
    device = jax.local_devices()[:1]
    programs = programs_lib.from_config(config, corpus.tokenizer, device)
    like = programs.states.like()
    own = {'params': like.params}
    step, fields = bundle.restore(workdir, config, own, which)
    if step:
      rest = {name: getattr(like, name) for name in REST}
      fields |= bundle.restore(workdir, config, rest, step)[1]
      state = train_state.TrainState(**fields)
    else:  # a model without a run, see runs/bundle.py
      state = programs.states.init(1)
      state = programs.states.init_from(state, fields['params'])
    return cls(config, corpus, programs, state, step)

  def batches(self, split: str, count: int) -> Iterator[batch_lib.Batch]:
    """Yields the first `count` batches of a split, on the device.

    Raises:
      InputError: the split is empty.
    """
    batches = pipeline.heldout_batches(
      self.corpus,
      self.config,
      split,
      self.programs.row_multiple,
      place=self.programs.put,
    )
    with contextlib.closing(batches):
      yield from itertools.islice(batches, count)


def plain(config: config_lib.Config) -> config_lib.Config:
  """Returns a Config of the same model, for one device and whole rows.

  It leaves out what only training needs and another machine may lack: the mesh,
  the compiler's options, the teacher.
  """
  return dataclasses.replace(
    config,
    mesh=config_lib.Mesh(),
    remat=config_lib.Remat(),
    train=dataclasses.replace(config.train, accumulate=1, compiler='default'),
    optimizer=dataclasses.replace(config.optimizer, offload=False),
    distillation=config_compression.Distillation(),
  )


def inspect(
  run: Run, workdir: str | os.PathLike, split: str, count: int
) -> dict[str, Any]:
  """Inspects a run on `count` batches of a split and writes the report.

  Args:
    run: a Run.
    workdir: its folder; `report.write` says what is written.
    split: 'train', 'validation' or 'test'.
    count: of batches; fewer if the split has fewer.

  Returns:
    The report, see `measure`.

  Raises:
    InputError: the split is empty.
  """
  values, last = measure(run, split, count)
  report.write(values, last, pathlib.Path(workdir))
  return values


def measure(run: Run, split: str, count: int) -> tuple[dict[str, Any], dict]:
  """Inspects a run, see `inspect`; writes nothing.

  Returns:
    (report, gradients of the last batch). The report has 'split', 'step',
    'batches', 'tokens', 'learning_rate', the task's metrics, 'parts' and
    'parameters' (gradients.describe), 'recurrent' (anatomy.is_recurrent),
    'gates', 'half_lives', 'states', 'units' and 'experts' (summary.py),
    'flow' (curves.norms), which is empty if nothing is recurrent.
  """
  task, params = run.programs.task, run.state.params
  body, _ = anatomy.body(task.model, params)
  recurrent = anatomy.is_recurrent(body)
  last, measured = None, []
  for batch in run.batches(split, count):
    last, values = _measure_batch(run, batch, recurrent)
    measured.append(jax.device_get(values))
  sums, norms, updates, seen, reaches = zip(*measured, strict=True)
  parts, parameters = gradients.describe(params, norms, updates)
  return {
    'split': split,
    'step': run.step,
    'batches': len(measured),
    'learning_rate': _rate(run),
    **evaluate.metrics(task, [jax.tree.map(float, one) for one in sums]),
    'parts': parts,
    'parameters': parameters,
    'recurrent': recurrent,
    'gates': summary.gates(seen),
    'half_lives': summary.half_lives(seen),
    'states': summary.states(seen),
    'units': summary.units(seen, run.config.model),
    'experts': summary.loads(seen),
    'flow': curves.norms(reaches).tolist() if recurrent else [],
  }, jax.device_get(last)


def _measure_batch(run, batch, recurrent):
  """Returns (gradients, (sums, norms, norms of updates, layers, flow))."""
  task, params = run.programs.task, run.state.params
  rows = batch.weights_BxL.shape[0]
  state = run.state.replace(carry=run.programs.states.init_carry(rows))
  tree, updates, sums = run.programs.compute_gradients(state, batch)
  return tree, (
    sums,
    gradients.norms(tree),
    gradients.norms(updates),
    activations.layers_of(task.model, params, batch),
    flow.sums(task, params, batch) if recurrent else None,
  )


def _rate(run):
  """Returns the learning rate of the inspected step."""
  rate = jax.jit(schedule_lib.make(run.config).rate)(run.state.step)
  rate, scale = jax.device_get((rate, run.state.rate_scale))
  return float(scale) * float(rate)
