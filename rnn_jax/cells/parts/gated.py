"""Cells whose gates read h, which the C++ library runs on a CPU.

recurrence.impl 'scan' is the cell's `step` in a loop; 'native' is the C++ code
of ops/gated.py or ops/gated_layers.py, which multiplies in float32; 'auto' is
'native' where it can run. A single step is always `step`.
"""

import dataclasses
from typing import Any
from typing import ClassVar

import jax

from rnn_jax.cells import base
from rnn_jax.cells.parts import vector
from rnn_jax.ops import checks
from rnn_jax.ops import gated


@dataclasses.dataclass(frozen=True)
class Config(vector.Config):
  """Options of these cells, those of vector.Config."""

  impls: ClassVar[tuple[str, ...]] = ('auto', 'scan', 'native')


class Cell(vector.Cell):
  """A cell with `recurrent`, whose kernel reads h.

  Attributes:
    kind: one of ops.gated.KINDS, unless it has a `run_native` of its own.
  """

  kind = ''

  def recur(
    self, state: base.PyTree, u: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[base.PyTree, jax.Array]:
    if not self._is_native():
      return base.scan_steps(self, state, u, starts_BxL)
    run = type(self)._run_native
    return base.in_segments(run, self, state, (u, starts_BxL))

  def lacking_native(self) -> str:
    """Returns why 'native' can't run this cell here; '' if it can."""
    policy = self.policy
    if policy.operands != 'float32' or policy.quantized:
      return (
        f"impl='native' multiplies in float32, not "
        f"{policy.quantized or policy.operands}: use 'scan'"
      )
    return gated.lacking()

  def recurrent_bias(self) -> jax.Array | None:
    """Returns the bias of U h, S numbers, or None."""
    return None

  def run_native(
    self, state: Any, u: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[Any, jax.Array]:
    """Runs all steps in C++. Returns (state, y)."""
    # A state is (h, c), or h alone.
    h_BxS, c_BxS = (*state, None)[:2]
    h, c, y = gated.recurrence(
      self.kind,
      h_BxS,
      c_BxS,
      u,
      self.recurrent.variables['params']['kernel'],
      self.recurrent_bias(),
      starts_BxL=starts_BxL,
    )
    return type(state)(*(x for x in (h, c) if x is not None)), y

  def _is_native(self):
    impl = self.plan.impl
    if impl == 'scan' or self.is_initializing():
      return False
    why = self.lacking_native()
    if impl == 'native' and why:
      raise NotImplementedError(why)
    if impl == 'auto':
      checks.log_choice(self.kind, f'scan: {why}' if why else 'native')
    return not why

  def _run_native(self, state, inputs):
    return self.run_native(state, *inputs)
