"""The state of a data iterator as an item of a checkpoint.

Grain's own handler writes a file for each process and needs as many processes
to read them. Here all processes have the same state: the first one writes it,
and any number of processes can read it. The file is the one that Grain writes
for a single process.
"""

import dataclasses
import json
from typing import Any

import grain
import orbax.checkpoint as ocp
from etils import epath

from rnn_jax.parallel import hosts

NAME = 'process_0-of-1.json'


@dataclasses.dataclass(frozen=True)
class Position:
  """A state that a data iterator had, to save while the iterator goes on."""

  state: dict[str, Any]

  def get_state(self) -> dict[str, Any]:
    return self.state


class Handler(ocp.CheckpointHandler):
  """Writes and reads `get_state()` of a grain.DatasetIterator."""

  def save(self, directory: epath.Path, args: 'Save') -> None:
    if hosts.is_first():
      state = json.dumps(args.item.get_state(), indent=4)
      (directory / NAME).write_text(state)

  def restore(
    self, directory: epath.Path, args: 'Restore'
  ) -> grain.DatasetIterator:
    args.item.set_state(json.loads((directory / NAME).read_text()))
    args.item.start_prefetch()
    return args.item


@ocp.args.register_with_handler(Handler, for_save=True)
@dataclasses.dataclass
class Save(ocp.args.CheckpointArgs):
  item: grain.DatasetIterator | Position


@ocp.args.register_with_handler(Handler, for_restore=True)
@dataclasses.dataclass
class Restore(ocp.args.CheckpointArgs):
  item: grain.DatasetIterator
