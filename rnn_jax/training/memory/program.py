"""The memory that a compiled program needs of a device, as XLA reports it.

  total = arguments + temporaries + outputs

in bytes of each device. Outputs that reuse an argument's buffer, such as a
donated train state, are counted once, with the arguments.
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
  """Returns the memory that a compiled program needs.

  Raises:
    NotImplementedError: the backend doesn't report it.
  """
  analysis = program.memory_analysis()
  if analysis is None:
    raise NotImplementedError("this backend doesn't report a program's memory")
  return ProgramMemory(
    analysis.argument_size_in_bytes,
    analysis.temp_size_in_bytes,
    analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
  )
