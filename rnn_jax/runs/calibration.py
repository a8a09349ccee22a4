"""The temperature of a run's probabilities: WORKDIR/calibration.json.

    {"temperature": 1.62, "step": 400, "sha256": "5d...", "split": "validation",
     "documents": 545, "seal": "c1..."}

    p(class) = softmax(logits / temperature)

launch.evaluate --calibrate fits it on a held-out split. `sha256` is that of the
checkpoint's seal: the temperature is for this checkpoint and no other. `seal`
is the SHA-256 of the other values.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.system import files

NAME = 'calibration.json'
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0  # a temperature
SEAL = 'seal'
BYTES = 2**16  # of the file, at most
LARGEST = 2**48  # a step, or a number of documents
NAME_LENGTH = 255  # of a split
REMEDY = 'remove it, or fit it again with launch.evaluate --calibrate'


@dataclasses.dataclass(frozen=True)
class Calibration:
  """A temperature, and what it was fitted to.

  Attributes:
    temperature: from MIN_TEMPERATURE to MAX_TEMPERATURE.
    step: of the checkpoint.
    sha256: of the checkpoint's seal.
    split: where the examples are from.
    documents: how many there were.
  """

  temperature: float
  step: int
  sha256: str
  split: str
  documents: int

  def check(self) -> None:
    """Checks the values, which a stranger may have written.

    Raises:
      ValueError: names the value that is wrong.
    """
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      kind: Any = field.type
      if type(value) is not kind:
        raise ValueError(
          f'{field.name}={value!r:.60} is not of type {kind.__name__}'
        )
    if not MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
      raise ValueError(
        f'temperature={self.temperature!r} is not from {MIN_TEMPERATURE} to '
        f'{MAX_TEMPERATURE}'
      )
    for name, least in (('step', 0), ('documents', 1)):
      if not least <= getattr(self, name) <= LARGEST:
        raise ValueError(f'{name} is not from {least} to 2**48')
    if not re.fullmatch('[0-9a-f]{64}', self.sha256):
      raise ValueError(f'sha256={self.sha256!r:.60} is not a digest')
    if len(self.split) > NAME_LENGTH:
      raise ValueError(f'split has more than {NAME_LENGTH} characters')


def has_probabilities(task: config_lib.Task) -> bool:
  """Returns whether a task's model predicts probabilities of classes."""
  return task.classifies and not task.writes_text


def write(calibration: Calibration, workdir: str | os.PathLike) -> None:
  """Writes a run's calibration.json."""
  values = dataclasses.asdict(calibration)
  text = files.to_json(values | {SEAL: seal(values)}, indent=1) + '\n'
  files.write_whole(pathlib.Path(workdir) / NAME, text)


def check_writable(workdir: str | os.PathLike) -> None:
  """Checks that no folder has the file's name.

  Raises:
    InputError: one does.
  """
  path = pathlib.Path(workdir) / NAME
  if path.is_dir():
    raise errors.InputError(f'{path} is a folder: remove it')


def read(workdir: str | os.PathLike) -> Calibration | None:
  """Returns a run's calibration; None if it has none.

  Raises:
    InputError: the file is damaged, or has other values than `write` writes.
  """
  path = pathlib.Path(workdir) / NAME
  if not os.path.lexists(path):
    return None
  with files.reading(path, REMEDY):
    return _parse(files.read_json(path, BYTES, within=workdir))


def of(
  workdir: str | os.PathLike, step: int, digest: Callable[[], str]
) -> float | None:
  """Returns the temperature of a run's checkpoint; None: it has none.

  A temperature of another checkpoint isn't used, and a warning says so.

  Args:
    workdir: the run's folder.
    step: of the checkpoint.
    digest: returns the SHA-256 of its seal; called where a file names the step.

  Raises:
    InputError: as `read`.
  """
  known = read(workdir)
  if known is None:
    return None
  if known.step == step and known.sha256 == digest():
    return known.temperature
  which = f'step {known.step}' if known.step != step else 'another checkpoint'
  logging.warning(
    '%s was fitted on %s, and this is step %d: probabilities are not '
    'calibrated; fit it again with launch.evaluate --calibrate',
    pathlib.Path(workdir) / NAME,
    which,
    step,
  )
  return None


def _parse(values: Any) -> Calibration:
  names = {field.name for field in dataclasses.fields(Calibration)}
  if not isinstance(values, dict) or {*values} != names | {SEAL}:
    raise ValueError(f'it has other keys than {sorted(names)} and {SEAL}')
  given = values.pop(SEAL)
  found = Calibration(**values)
  found.check()
  if given != seal(values):
    raise ValueError(f'its values and its {SEAL} differ')
  return found


def seal(values: dict[str, Any]) -> str:
  """Returns the SHA-256 of the values of a calibration, without its seal."""
  text = json.dumps(values, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()
