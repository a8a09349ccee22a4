"""Cells whose heads share keys and queries in groups.

Devices that share heads have whole groups.
"""

import dataclasses
from typing import ClassVar
from typing import Self

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import matrix


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options of these cells, section `cell` of a config."""

  groups: int = config_lib.option(1, minimum=1)  # of heads, which share keys

  scaled_axes: ClassVar[tuple[int, ...]] = (-2, -1)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.heads % self.groups:
      self._refuse('groups', f'it must divide cell.heads={self.heads}')
    if (shards := config.mesh.tensor) > 0 and self.groups % shards:
      self._refuse('groups', f'mesh.tensor={shards} must divide it')
    super().check(config)

  def of_shard(self, shards: int) -> Self:
    own = super().of_shard(shards)
    return dataclasses.replace(own, groups=self.groups // shards)
