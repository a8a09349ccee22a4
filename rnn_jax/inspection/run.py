"""A run's checkpoint, looked at from inside on a few batches.

On one device, whatever mesh the run had: on several, the numbers are the same.
Nothing of the run changes. Rows begin with a state of zeros, also where
data.carry_state hands them one while training.
"""

import dataclasses
import functools
import itertools
import os
import pathlib

import jax

from rnn_jax import config as config_lib
from rnn_jax.config import compression as config_compression
from rnn_jax.data import pipeline
from rnn_jax.inspection import activations
from rnn_jax.inspection import anatomy
from rnn_jax.inspection import curves
from rnn_jax.inspection import flow
from rnn_jax.inspection import gradients
from rnn_jax.inspection import report
from rnn_jax.inspection import summary
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import checkpoint
from rnn_jax.training import evaluate
from rnn_jax.training import schedule as schedule_lib
from rnn_jax.training import step as step_lib
from rnn_jax.training import workdir as workdir_lib

# Of a train state, what the next step's update depends on.
PARTS = 'params', 'optimizer', 'loss_scale', 'step', 'rate_scale', 'key'


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run as it lies in its folder, with a checkpoint's train state."""

  config: config_lib.Config
  corpus: pipeline.Corpus
  steps: step_lib.Steps
  state: dict
  step: int

  @classmethod
  def open(
    cls, workdir: str | os.PathLike, which: checkpoint.Which = 'best'
  ) -> 'Run':
    """Restores a run's 'best' or 'latest' checkpoint, or that of a step.

    A model that was put there (training/bundle.py) is one before a first step.

    Raises:
      InputError: no such run or checkpoint, or its data is gone.
    """
    config = plain(config_lib.parse(workdir_lib.load_config(workdir)))
    corpus = pipeline.Corpus.open(config, workdir)
    device = jax.local_devices()[:1]
    steps = step_lib.from_config(config, corpus.tokenizer, device)
    folder = checkpoint.Checkpoints(
      workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
    )
    try:
      if which == 0 or folder.steps() == [0]:
        step, params = folder.restore_parameters(steps.parameters_like(), which)
        state = steps.begin_with(steps.init(config.train.seed, 1), params)
      else:
        step, state = folder.restore_parts(steps.parts_like(PARTS), which)
    finally:
      folder.close()
    return cls(config, corpus, steps, state, step)

  def batches(self, split: str, count: int):
    """Yields the first `count` batches of a split, on the device.

    Raises:
      InputError: the split is empty.
    """
    multiple = mesh_lib.row_multiple(self.steps.mesh, self.config.mesh)
    place = functools.partial(mesh_lib.put, shardings=self.steps.batch_sharding)
    found = pipeline.heldout_batches(
      self.corpus, self.config, split, multiple, place=place
    )
    try:
      yield from itertools.islice(found, count)
    finally:
      found.close()


def plain(config: config_lib.Config) -> config_lib.Config:
  """Returns a Config of the same model, for one device and whole rows.

  What training alone needs, and another machine may lack, is left out: the
  mesh, the compiler's options, the teacher.
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
) -> dict:
  """Looks at a run on `count` batches of a split and writes what it finds.

  Args:
    run: a Run.
    workdir: its folder; `report.write` says what is written.
    split: 'train', 'validation' or 'test'.
    count: of batches; fewer if the split has fewer.

  Returns:
    The report, see `look`.

  Raises:
    InputError: the split is empty.
  """
  found, last = look(run, split, count)
  report.write(found, last, pathlib.Path(workdir))
  return found


def look(run: Run, split: str, count: int) -> tuple[dict, dict]:
  """Looks at a run, see `inspect`; writes nothing.

  Returns:
    (report, gradients of the last batch). The report has 'split', 'step',
    'batches', 'tokens', 'learning_rate', the task's metrics, 'parts' and
    'parameters' (gradients.describe), 'recurrent' (anatomy.is_recurrent),
    'gates', 'half_lives', 'states' and 'units' (summary.py), 'flow'
    (curves.norms). The last is empty where nothing is recurrent.
  """
  task, params = run.steps.task, run.state['params']
  body, _ = anatomy.body(task.model, params)
  recurrent = anatomy.is_recurrent(body)
  last, looks = None, []
  for batch in run.batches(split, count):
    last, found = _look_at(run, batch, recurrent)
    looks.append(jax.device_get(found))
  sums, slopes, updates, seen, reaches = zip(*looks, strict=True)
  parts, parameters = gradients.describe(params, slopes, updates)
  return {
    'split': split,
    'step': run.step,
    'batches': len(looks),
    'learning_rate': _rate(run),
    **evaluate.metrics(task, [jax.tree.map(float, one) for one in sums]),
    'parts': parts,
    'parameters': parameters,
    'recurrent': recurrent,
    'gates': summary.gates(seen),
    'half_lives': summary.half_lives(seen),
    'states': summary.states(seen),
    'units': summary.units(seen, run.config.model),
    'flow': curves.norms(reaches).tolist() if recurrent else [],
  }, jax.device_get(last)


def _look_at(run, batch, recurrent):
  """(gradients, (sums, norms of gradients and of updates, layers, flow))."""
  task, params = run.steps.task, run.state['params']
  rows = batch.weights_BxL.shape[0]
  state = run.state | {'carry': run.steps.init_carry(rows)}
  slopes, updates, sums = run.steps.look(state, batch)
  return slopes, (
    sums,
    gradients.norms(slopes),
    gradients.norms(updates),
    activations.layers_of(task.model, params, batch),
    flow.sums(task, params, batch) if recurrent else None,
  )


def _rate(run):
  """The learning rate of the step that is looked at."""
  rate = jax.jit(schedule_lib.make(run.config).rate)(run.state['step'])
  rate, scale = jax.device_get((rate, run.state['rate_scale']))
  return float(scale) * float(rate)
