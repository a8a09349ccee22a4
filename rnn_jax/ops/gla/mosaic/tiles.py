"""Tiles of 64 x 64: memory, products and borders of the kernels.

Hopper's tensor cores read 64 rows of an operand from shared memory. There, an
operand is up to three bfloat16 tiles that sum to a float32 tile: 3 x 8 bits are
float32's 24. With x = x_0 + x_1 + x_2 and y likewise, their product is the sum
of x_i y_j, i + j <= 2; what is left out is below 2^-22 of it.
"""

import functools
import math
import types
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TILE = 64
FORGOTTEN = -1e4  # e^-1e4 is 0 in float32, and 0 times it is no NaN
PARTS = {'bfloat16': 1, 'tf32': 2, 'float32': 3}  # 8, 16 and 24 bits
LOG2E = 1 / math.log(2)


class Plan(NamedTuple):
  """The static arguments that a kernel is specialized on."""

  operands: str
  B: int
  L: int
  H: int
  K: int
  P: int
  interpret: bool

  @property
  def N(self) -> int:
    return self.L // TILE

  @property
  def parts(self) -> int:
    """The number of bfloat16 tiles of an operand."""
    return PARTS[self.operands]

  @property
  def logs(self) -> int:
    """The same of a tile of log-decays."""
    return max(self.parts, 2)

  @property
  def keeps(self) -> bool:
    """Whether the backward pass gets what `prepare` made, or makes it again.

    In bfloat16 these are as large as q and k; in float32 three times as large.
    """
    return self.operands == 'bfloat16'

  @property
  def fast(self) -> bool:
    """Whether a decay is the GPU's power of 2, exact to about 22 bits."""
    return self.operands != 'float32'

  @property
  def stored(self) -> jax.typing.DTypeLike:
    """The dtype of inputs and outputs."""
    return jnp.bfloat16 if self.operands == 'bfloat16' else jnp.float32


# Memory.


def tile(dtype: jax.typing.DTypeLike, *leading: int) -> Any:
  """Returns tiles in shared memory, where tensor cores can read them."""
  width = 128 // jnp.dtype(dtype).itemsize
  layout = plgpu.TilingTransform((8, width)), plgpu.SwizzleTransform(128)
  return plgpu.SMEM((*leading, TILE, TILE), dtype, transforms=layout)


def operand(*parts: int) -> Any:
  """Returns the tiles of an operand, or of several."""
  return tile(jnp.bfloat16, *parts)


def call(
  plan: Plan,
  kernel: Callable[..., None],
  grid: dict[str, int],
  inputs: Sequence[jax.Array],
  outputs: Sequence[tuple],
  scratch: dict[str, Any],
) -> list[jax.Array]:
  """Runs `kernel` at each point of a grid, for each head of each sequence.

  Args:
    plan: the shapes.
    kernel: a function of the plan, references to the inputs and to the outputs,
      and the scratch memory, whose attributes are its names.
    grid: the size of each axis by name.
    inputs: arrays.
    outputs: (shape, dtype) each.
    scratch: shared memory and barriers of one program.

  Returns:
    The outputs.
  """
  inputs_end, outputs_end = len(inputs), len(inputs) + len(outputs)

  def body(*refs):
    kernel(
      plan,
      refs[:inputs_end],
      refs[inputs_end:outputs_end],
      types.SimpleNamespace(
        **dict(zip(scratch, refs[outputs_end:], strict=True))
      ),
    )

  return plgpu.kernel(
    body,
    out_type=[jax.ShapeDtypeStruct(*of) for of in outputs],
    scratch_types=[*scratch.values()],
    grid=(*grid.values(), plan.B * plan.H),
    grid_names=(*grid, 'row'),
    compiler_params=plgpu.CompilerParams(approx_math=plan.fast),
    kernel_name=f'gla_{getattr(kernel, "func", kernel).__name__.strip("_")}',
    interpret=_interpreter() if plan.interpret else None,
  )(*inputs)


def _interpreter():
  from jax._src.pallas.mosaic_gpu.interpret import params

  return params.InterpretGPUParams()


def sequence(plan: Plan) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns this program's row, which is a head of a sequence, and the two."""
  row, heads = jax.lax.axis_index('row'), jnp.int32(plan.H)
  return row, jax.lax.div(row, heads), jax.lax.rem(row, heads)


def at(n: Any) -> Any:
  """Returns the indices of tile n along an axis."""
  return pl.ds(n * TILE, TILE)


def fetch(barrier: Any, *pairs: tuple[Any, Any]) -> None:
  """Begins to load from global memory into shared memory."""
  for source, to in pairs:
    plgpu.copy_gmem_to_smem(source, to, barrier)


def load(barrier: Any, *pairs: tuple[Any, Any]) -> None:
  """Loads from global memory into shared memory."""
  fetch(barrier, *pairs)
  plgpu.barrier_wait(barrier)


def store(*pairs: tuple[Any, Any]) -> None:
  """Stores from shared memory into global memory; what is read can change."""
  plgpu.commit_smem()
  for source, to in pairs:
    plgpu.copy_smem_to_gmem(source, to)
  plgpu.wait_smem_to_gmem(0, wait_read_only=True)


# Operands and their products.


def split(x: jax.Array, parts: int) -> list[jax.Array]:
  """Returns bfloat16 arrays that sum to x, as far as `parts` of 8 bits go.

  Bits are truncated, since a compiler may optimize rounding to bfloat16 and
  back away. The last part is rounded.
  """
  made = []
  for _ in range(parts - 1):
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & jnp.int32(-(2**16))
    part = jax.lax.bitcast_convert_type(bits, jnp.float32)
    made.append(part.astype(jnp.bfloat16))
    x = x - part
  return [*made, x.astype(jnp.bfloat16)]


def write(refs: Sequence[Any], x: jax.Array) -> None:
  """Writes the parts of a float32 tile."""
  for ref, part in zip(refs, split(x, len(refs)), strict=True):
    ref[...] = part


class Transposed(NamedTuple):
  """A tile that is read by columns."""

  ref: Any


def transposed(refs: Sequence[Any]) -> list[Transposed]:
  """Returns an operand that is read by columns."""
  return [Transposed(ref) for ref in refs]


def dot(plan: Plan, x: Sequence[Any], y: Sequence[Any]) -> jax.Array:
  """Returns the product of two operands, float32."""
  # Small products first, as sums in float32 are the more exact for it.
  products = [
    (x[i], y[total - i])
    for total in reversed(range(max(len(x), len(y))))
    for i in range(len(x))
    if 0 <= total - i < len(y)
  ]
  plgpu.commit_smem()
  if plan.interpret:  # the interpreter's wgmma takes no transposed operands
    multiply = jax.lax.Precision.HIGHEST
    each = (
      jnp.dot(_interpreted(a), _interpreted(b), precision=multiply)
      for a, b in products
    )
    return functools.reduce(jnp.add, each)

  def accumulate(acc):
    for a, b in products:
      plgpu.wgmma(acc, _reference(a), _reference(b))
    return acc[...]

  return pl.run_scoped(accumulate, plgpu.ACC((TILE, TILE), jnp.float32))


def _reference(x):
  if isinstance(x, Transposed):
    return plgpu.transpose_ref(x.ref, (1, 0))
  return x


def _interpreted(x):
  if isinstance(x, Transposed):
    return _interpreted(x.ref).T
  return x[...].astype(jnp.float32)


# Tiles in registers.


def pairs(plan: Plan) -> tuple[jax.Array, jax.Array]:
  """Returns the row and the column indices of a tile."""

  def indices(axis):
    iota = jax.lax.broadcasted_iota(jnp.int32, (TILE, TILE), axis)
    return _in_rows(plan, iota)  # at once: Mosaic asks for its layout

  return indices(0), indices(1)


def indices(plan: Plan) -> tuple[jax.Array, jax.Array]:
  """Returns the indices of rows and of columns, as vectors along them."""

  def along(axis):
    iota = jax.lax.broadcasted_iota(jnp.int32, (TILE,), 0)
    layout = plgpu.Layout.WGMMA.reduce(1 - axis)
    return iota if plan.interpret else plgpu.layout_cast(iota, layout)

  return along(0), along(1)


def diagonal(plan: Plan) -> jax.Array:
  """Returns where a tile's row is its column."""
  rows, columns = indices(plan)
  return repeated(rows, 0) == repeated(columns, 1)


def unit(plan: Plan) -> float:
  """Returns the unit of log-decays whose power is a decay."""
  return LOG2E if plan.fast else 1.0


def power(plan: Plan, x: jax.Array) -> jax.Array:
  """Returns the decays of sums of log-decays in that unit."""
  return jnp.exp2(x) if plan.fast else jnp.exp(x)


def zeros(plan: Plan) -> jax.Array:
  """Returns a tile of zeros."""
  return _in_rows(plan, jnp.zeros((TILE, TILE), jnp.float32))


def vector(plan: Plan, ref: Any, axis: int) -> jax.Array:
  """Returns a vector in memory that runs along an axis of tiles."""
  layout = plgpu.Layout.WGMMA.reduce(1 - axis)
  return ref[...] if plan.interpret else plgpu.layout_cast(ref[...], layout)


def repeated(vector: jax.Array, axis: int) -> jax.Array:
  """Returns a tile of vectors that run along an axis."""
  return jax.lax.broadcast_in_dim(vector, (TILE, TILE), (axis,))


def _in_rows(plan, x):
  return x if plan.interpret else plgpu.layout_cast(x, plgpu.Layout.WGMMA)
