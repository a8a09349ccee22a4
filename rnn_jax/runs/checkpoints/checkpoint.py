"""Checkpoints of a run: saved in the background, checked when read.

    <folder>/<step>/state/      the sections of arrays (Orbax, OCDBT)
    <folder>/<step>/data/       the position in the data, if any (JSON)
    <folder>/<step>/progress/   a small JSON dict
    <folder>/<step>/SHA256SUMS  the seal: `sha256sum -c SHA256SUMS` checks it

A checkpoint is a table of sections (sections.py), and a reader names those that
it wants.

Orbax writes a step under a temporary name and renames it when it is complete,
so a killed process leaves no partial checkpoint under a step's name. Orbax
doesn't notice changed bytes: the seal, written just before the rename,
distinguishes an intact checkpoint from one that a disk has damaged. In a bucket
(remote.py) a file written after the seal, commit_success.txt, replaces the
rename.

Each of several processes writes its own part of the arrays, and the first one
all the rest; the seal is written after all of them. All see one folder. The
position in the data is the same in all of them, so any number of processes can
resume.
"""

import math
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import cast

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from orbax.checkpoint import checkpoint_managers

from rnn_jax import errors
from rnn_jax.parallel import hosts
from rnn_jax.runs.checkpoints import checksums
from rnn_jax.runs.checkpoints import disk
from rnn_jax.runs.checkpoints import remote
from rnn_jax.runs.checkpoints import sections
from rnn_jax.system import files

METRIC = 'held_out_loss'  # the key of `progress` that decides the best
# Of parameters alone: what is encoded waits in memory for a file to be full.
CHUNK = 2**21  # bytes of an array that are encoded together
DATA_FILE = 2**23  # bytes
PyTree = Any
Which = Literal['latest', 'best'] | int


class _Lent(np.ndarray):
  """An array that Orbax doesn't copy before it writes it."""

  def __deepcopy__(self, memo: dict[int, Any] | None) -> '_Lent':
    return self


class Checkpoints:
  """The newest `keep` checkpoints of a run, and the best one.

  The best is the one with the lowest finite `progress['held_out_loss']`, the
  first of equals. Damaged ones don't count and are never deleted.
  """

  def __init__(
    self, folder: str | os.PathLike[str], keep: int | None = None
  ) -> None:
    """Opens the folder; with `keep` None it is only read, never written.

    A writer creates the folder and removes what a killed save has left.

    Raises:
      InputError: the folder can't be created, or its bucket can't be reached.
    """
    logging.get_absl_logger().addFilter(_not_orbax_or_wanted)
    remote.reach(folder, writes=keep is not None)
    self.folder = remote.path(folder)
    checksums.refuse_special(self.folder)
    self._keep = keep
    self._writing: int | None = None  # the step that is being saved
    self._replaced: os.PathLike | None = None  # deleted after that
    self._intact: set[int] = set()  # steps this object has saved or restored
    self._damaged: set[int] = set()
    with disk.clear_errors(self.folder):
      self._manager = ocp.CheckpointManager(
        self.folder, options=self._options()
      )
    self._losses = {step: self._loss(step) for step in self.steps()}

  def steps(self) -> list[int]:
    """Returns the steps of all checkpoints, damaged or not, ascending."""
    return sorted(self._manager.all_steps())

  def newest_complete(self) -> int | None:
    """Returns the newest step that is on disk; one being written isn't."""
    if remote.is_remote(self.folder):
      steps = [step for step in self.steps() if step != self._writing]
    else:
      names = (path.name for path in self.folder.iterdir())
      steps = [int(name) for name in names if name.isdecimal()]
    return max(steps, default=None)

  def save(
    self,
    step: int,
    table: Sequence[sections.Section],
    values: Mapping[str, Any],
    *,
    replace: bool = False,
  ) -> bool:
    """Starts to write a checkpoint, after waiting for the previous one.

    Args:
      step: number of the checkpoint.
      table: the sections that are written.
      values: of the sections by name; they may change as soon as this returns.
      replace: the new checkpoint replaces one of the same step, which is
        deleted once the new one is on disk.

    Returns:
      False where this object has already saved or restored this step: then
      nothing is written.

    Raises:
      InputError: the disk is full, now or during the previous save.
      ValueError: the step is already saved, with another held-out loss.
    """
    self.wait()
    loss = _finite(values['progress'].get(METRIC))
    if step in self._intact and not replace:
      if loss not in (None, self._losses[step]):
        raise ValueError(
          f'step={step} is already saved with {METRIC}={self._losses[step]}, '
          f'not {loss}: evaluate before saving'
        )
      return False
    written = {x.on_disk: x.to_disk(values[x.name]) for x in table}
    records = [x.name for x in table if isinstance(x, sections.Record)]
    items = {name: ocp.args.JsonSave(written.pop(name)) for name in records}
    state = _present(written)
    if hosts.broadcast(
      hosts.run_on_first(lambda: self._make_room(step, state, replace))
    ):
      self._damaged.discard(step)
      self._intact.discard(step)
      self._manager.reload()
    self._losses[step] = loss
    self._writing = step
    items['state'] = ocp.args.StandardSave(state)
    with disk.clear_errors(self.folder):
      self._manager.save(step, args=ocp.args.Composite(**items), force=True)
    return True

  def save_params(self, step: int, params: PyTree) -> None:
    """Writes a checkpoint of only parameters, with little memory besides.

    Args:
      step: number of the checkpoint.
      params: NumPy arrays, which nobody changes until `close`.

    Raises:
      InputError: the disk is full.
    """
    state = {'params': jax.tree.map(lambda x: x.view(_Lent), params)}
    self._make_room(step, state, replace=False)
    self._losses[step], self._writing = None, step
    chunks = ocp.SaveArgs(chunk_byte_size=CHUNK)
    items = {
      'state': ocp.args.PyTreeSave(
        state,
        jax.tree.map(lambda x: chunks, state),
        ocdbt_target_data_file_size=DATA_FILE,
      ),
      'progress': ocp.args.JsonSave({}),
    }
    with disk.clear_errors(self.folder):
      self._manager.save(step, args=ocp.args.Composite(**items), force=True)

  def set_aside_after(self, step: int) -> None:
    """Renames all checkpoints after one, which is then the newest.

    Raises:
      InputError: there is no checkpoint of the step, or it is damaged.
    """
    self._first_intact(step, lambda step: None)
    if step not in self.steps():
      raise errors.InputError(f'no checkpoint in {self.folder}: train first')
    later = [other for other in self.steps() if other > step]
    with disk.clear_errors(self.folder):
      hosts.run_on_first(
        lambda: [self._put_aside(other, False) for other in later]
      )
      self._manager.reload()

  def read(
    self, table: Sequence[sections.Section], which: Which = 'latest'
  ) -> tuple[int, dict[str, Any]]:
    """Reads sections of the latest, the best or a given checkpoint.

    A damaged checkpoint is skipped with a warning: 'latest' then tries the next
    older one, 'best' the next best one, and finally those without an
    evaluation.

    Args:
      table: the sections that are read, whatever others there are.
      which: 'latest', 'best' or a step.

    Returns:
      The step, and the values of the sections by name.

    Raises:
      InputError: there is no checkpoint, all are damaged, the given one is
        missing or damaged, or an intact one doesn't fit the table.
    """
    result = self._first_intact(which, lambda step: self._read(step, table))
    if result is None:
      raise self._none()
    return result

  def _none(self):
    where = f' --workdir={self.folder.parent}'
    return errors.InputError(
      f'no checkpoint in {self.folder}: train first with '
      'python -m launch.train' + where * (not remote.is_remote(self.folder))
    )

  def step(self, which: Which) -> int:
    """Returns the step that `read` tries first, damaged or not.

    Raises:
      InputError: there is no such checkpoint.
    """
    candidates = self._candidates(which)
    if not candidates:
      raise self._none()
    return candidates[0]

  def wait(self) -> None:
    """Returns when the current save is on disk.

    Raises:
      InputError: the disk is full.
    """
    try:
      with disk.clear_errors(self.folder):
        self._manager.wait_until_finished()
      if self._replaced is not None:
        with disk.clear_errors(self.folder):
          epath.Path(self._replaced).rmtree()
        self._replaced = None
    finally:
      if self._writing in self.steps():  # not if the write failed
        self._intact.add(self._writing)
      self._writing = None

  def close(self) -> None:
    """Waits for the current save and ends Orbax's threads.

    Raises:
      InputError: the disk is full.
    """
    with disk.clear_errors(self.folder):
      self._manager.close()

  def _options(self):
    if self._keep is None:
      return ocp.CheckpointManagerOptions(read_only=True)
    return ocp.CheckpointManagerOptions(
      cleanup_tmp_directories=True,
      preservation_policy=_Preserve(self._preserved),
      async_options=ocp.AsyncOptions(
        # Orbax calls it after all items are written, before the rename.
        post_finalization_callback=self._seal
      ),
    )

  def _seal(self):
    renamed = not remote.is_remote(self.folder)
    suffix = ocp.utils.TMP_DIR_SUFFIX if renamed else ''
    checksums.write(self.folder / f'{self._writing}{suffix}')

  def _preserved(self, steps):
    """Returns those of `steps` to keep once the newest is on disk."""
    intact = sorted(set(steps) - self._damaged)
    newest = set(intact[-self._keep :])
    return newest | set(self._by_loss(intact)[:1]) | self._damaged

  def _by_loss(self, steps):
    evaluated = [step for step in steps if self._losses[step] is not None]
    return sorted(evaluated, key=lambda step: (self._losses[step], step))

  def _loss(self, step):
    try:
      return _finite(
        _read_json(self.folder / str(step) / 'progress').get(METRIC)
      )
    except (OSError, ValueError, TypeError, AttributeError):
      return None  # damaged; reported when it is restored

  def _candidates(self, which):
    newest_first = self.steps()[::-1]
    if which == 'latest':
      return newest_first
    if which == 'best':
      best_first = self._by_loss(newest_first)
      return best_first + [x for x in newest_first if x not in best_first]
    if newest_first and which not in newest_first:
      raise errors.InputError(
        f'no checkpoint of step {which} in {self.folder}: '
        f'choose one of {newest_first[::-1]}'
      )
    return [step for step in newest_first if step == which]

  def _first_intact(self, which, read):
    """Returns (step, read(step)) of the first intact candidate, or None."""
    self.wait()
    candidates = self._candidates(which)
    for step in candidates:
      folder = self.folder / str(step)
      # Only the first process reads all bytes.
      with disk.clear_errors(folder):
        reason = hosts.broadcast(
          checksums.damage(folder) if hosts.is_first() else None
        )
      if not reason:
        restored = read(step)
        self._intact.add(step)
        return step, restored
      self._damaged.add(step)
      if hosts.is_first():
        logging.warning('skipped damaged checkpoint %s: %s', folder, reason)
    if not candidates:
      return None
    raise errors.InputError(
      f'every requested checkpoint in {self.folder} is damaged (steps '
      f'{sorted(candidates)}): restore a copy, or train in another --workdir'
    )

  def _read(self, step, table):
    """Returns the values of the sections of an intact checkpoint."""
    folder, stored = self.folder / str(step), self.stored(step)
    arrays = [x for x in table if not isinstance(x, sections.Record)]
    lines = [line for x in arrays for line in x.fits(stored.get(x.on_disk))]
    if lines:
      listed = '\n  '.join(lines[:10] + ['...'] * (len(lines) > 10))
      raise errors.InputError(
        f'checkpoint {folder} does not fit this run '
        f'(saved -> requested):\n  {listed}\n'
        f'give the config that it was saved with'
      )
    read = {x.on_disk: x.shapes(stored.get(x.on_disk)) for x in arrays}
    read |= _read_arrays(folder / 'state', _present(read))
    for x in table:
      if isinstance(x, sections.Record):
        read[x.name] = _read_json(folder / x.name)
    return {x.name: x.from_disk(read[x.on_disk]) for x in table}

  def stored(self, step: int) -> dict[str, PyTree]:
    """Returns the saved sections with the metadata of arrays as leaves."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
      metadata = reader.metadata(self.folder / str(step) / 'state')
    return metadata.item_metadata.tree

  def _make_room(self, step, state, replace):
    """Checks the disk's space and renames what has the step's name.

    Returns whether it renamed anything.
    """
    if not remote.is_remote(self.folder):
      disk.check_space(self.folder, state)
    with disk.clear_errors(self.folder):
      return self._put_aside(step, replace)

  def _put_aside(self, step, replace):
    """Renames a folder of the step. Returns whether one existed."""
    folder = self.folder / str(step)
    if not folder.exists():
      return False
    number = 1
    while (aside := folder.with_name(f'{step}.replaced-{number}')).exists():
      number += 1
    folder.rename(aside)
    if replace:
      self._replaced = aside
      return True
    logging.warning(
      'the checkpoint of step %d is now %s, delete it when you no longer need '
      'it',
      step,
      aside,
    )
    return True


class _Preserve(checkpoint_managers.PreservationPolicy):
  """Keeps what a function of steps returns.

  Orbax's BestN fails on a damaged checkpoint, and its LatestN counts those.
  """

  def __init__(self, preserved):
    self._preserved = preserved

  def should_preserve(self, checkpoints, *, context):
    preserved = self._preserved([info.step for info in checkpoints])
    return [info.step in preserved for info in checkpoints]


def _present(written):
  """Returns the sections that have any array."""
  return {name: x for name, x in written.items() if jax.tree.leaves(x)}


def _read_arrays(folder, shapes):
  """Returns the arrays of some sections, {} for none."""
  if not shapes:
    return {}
  args = ocp.args.PyTreeRestore(
    item=shapes,
    restore_args=ocp.checkpoint_utils.construct_restore_args(shapes),
    partial_restore=True,
  )
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
    restored = reader.restore(folder, args=args)
  return jax.tree.map(  # without a sharding they are NumPy's
    lambda x: x if isinstance(x, jax.Array) else jax.device_put(x), restored
  )


def _read_json(folder):
  return files.from_json(remote.read_bytes(folder / 'metadata'), finite=False)


def _finite(loss):
  return None if loss is None or not math.isfinite(loss) else float(loss)


def _not_orbax_or_wanted(record):
  """Drops Orbax's records unless --verbosity=1: it raises what matters."""
  orbax = f'{os.sep}orbax{os.sep}' in record.pathname
  return not orbax or logging.get_verbosity() >= logging.DEBUG


def parse_which(checkpoint: str | int) -> Which:
  """Returns 'best', 'latest' or a step, from a flag or a caller.

  Raises:
    InputError: it's anything else.
  """
  if isinstance(checkpoint, int) or checkpoint in ('best', 'latest'):
    return cast(Which, checkpoint)
  if checkpoint.isdecimal():
    return int(checkpoint)
  raise errors.InputError(
    f"checkpoint={checkpoint!r}: give 'best', 'latest' or a step"
  )
