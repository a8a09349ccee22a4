"""What a compiled program needs of a device's memory, by XLA's own account.

  total = arguments + temporaries + outputs

in bytes of each device. Outputs that take an argument's place, as those of a
donated train state do, are counted once, with the arguments.
"""

from typing import NamedTuple

import jax


class ProgramMemory(NamedTuple):
  """Bytes of each device; see the module's docstring."""

  arguments: int
  temporaries: int
  outputs: int

  @property
  def total(self) -> int:
    return sum(self)


def of(program: jax.stages.Compiled) -> ProgramMemory:
  """Returns what a compiled program needs."""
  found = program.memory_analysis()
  return ProgramMemory(
    found.argument_size_in_bytes,
    found.temp_size_in_bytes,
    found.output_size_in_bytes - found.alias_size_in_bytes,
  )
