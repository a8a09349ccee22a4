"""Assembles a run from its config: programs, batches, checkpoints.

    config -> resolve -> nothing is left open, and the data are known
           -> make    -> the parts of the run, a Trainer

All that comes after gets the parts.
"""

import os
import pathlib

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import identity
from rnn_jax.data import pipeline
from rnn_jax.ops import precision
from rnn_jax.parallel import hosts
from rnn_jax.runs import goodput
from rnn_jax.runs import progress
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.system import activity
from rnn_jax.system import bounds
from rnn_jax.system import target
from rnn_jax.training import initialize
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import resolve as resolve_lib
from rnn_jax.training import trainer as trainer_lib


def resolve(
  config: config_lib.Config,
  workdir: str | os.PathLike,
  source: initialize.Source | None = None,
  accept_new: bool = False,
  verify: bool = False,
) -> resolve_lib.Resolved:
  """Fills in a run's config and opens its data; leaves its folder as it is.

  Args:
    config: of the run.
    workdir: path of its folder.
    source: what a new run begins with.
    accept_new: the documents may be others than the run began with.
    verify: checks all token files of the data, not as they are read.

  Raises:
    InputError: bad data or config, a folder of another run, or other data than
      the run began with.
  """
  given = config_lib.to_dict(config)
  before = hosts.broadcast(
    hosts.run_on_first(lambda: workdir_lib.join(workdir, given))
  )
  tokenizer = None
  if source:
    tokenizer, taken = initialize.tokenizer_of(source, config)
    progress.say(taken)

  def open_corpus(config):
    folder = None if before is None else workdir
    return corpus_lib.Corpus.open(config, folder, accept_new, verify, tokenizer)

  resolved = resolve_lib.resolve(config, open_corpus, before)
  if filled := resolve_lib.describe(resolved.config):
    progress.say(filled)
  return resolved


def make(
  resolved: resolve_lib.Resolved, workdir: str | os.PathLike
) -> trainer_lib.Trainer:
  """Returns the parts of a run, in its folder.

  Raises:
    InputError: the machine can't hold them, or there are no batches.
  """
  clock = goodput.Clock()
  config, corpus = resolved.config, resolved.corpus
  hosts.run_on_first(lambda: _keep_data(corpus, workdir))
  programs = _programs(config, corpus)
  multiple = programs.row_multiple * config.train.accumulate
  batches = pipeline.training_batches(
    corpus, config, multiple, place=programs.put, own=programs.own_rows
  )
  folder = config.train.checkpoint_dir
  hosts.run_on_first(lambda: workdir_lib.keep_copies(workdir, folder))
  return trainer_lib.Trainer(
    config=config,
    workdir=workdir,
    corpus=corpus,
    programs=programs,
    batches=batches,
    row_multiple=multiple,
    checkpoints=checkpoint.Checkpoints(
      workdir_lib.checkpoint_folder(workdir, folder),
      config.train.keep_checkpoints,
    ),
    clock=clock,
  )


def _keep_data(corpus, workdir):
  """Writes which data a run has, and its tokenizer."""
  os.makedirs(workdir, exist_ok=True)
  identity.write(corpus.digests, workdir)
  path = pathlib.Path(workdir, 'tokenizer.json')
  if not path.exists():
    corpus.tokenizer.save(path)


def _programs(config, corpus):
  """Returns the programs of a run whose state the devices can hold."""
  quantized = config.train.quantized
  if emulated := precision.emulated(quantized, target.device()):
    progress.say(f'train.quantized={quantized!r}: {emulated}')
  with activity.doing('building the model'):
    programs = programs_lib.from_config(config, corpus.tokenizer)
  like = programs.states.like()
  bounds.check_arrays(
    (like.params, like.opt_state),
    f"parameters and the optimizer's state with {values.largest_sizes(config)}",
  )
  if programs.states.schedule.rescale and not len(
    corpus.documents['validation']
  ):
    errors.refuse(
      'schedule.name',
      config.schedule.name,
      'it needs validation documents: give data.validation_path, or a '
      'percentage in data.splits',
    )
  return programs
