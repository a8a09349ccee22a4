"""A cell as a layer: a linen module from rows of vectors to rows of vectors.

    y = layer(x)                          from a state of zeros
    state, y = layer.scan(state, x)       from a state; None: zeros
    state, y = layer.step(state, x_BxD)   one step, for decoding
    state = layer.init_state(B)

A layer makes its cell when it is called: the input determines the width D and
the number format. The layer's parameters are the cell's, with the same names.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax.core
import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.config import conditions
from rnn_jax.config import values
from rnn_jax.layers import rows as rows_lib
from rnn_jax.ops import precision

PyTree = Any


class Data(config_lib.Data):
  """The rows of a layer: they may continue others, and have any length."""

  carry_state = True


class Layer(nn.Module):
  """Base of all layers; each has a `cell`, the name of its file, and fields.

  x is BxLxD, y is BxLxF with F = features. A padded row ends after `lengths`
  steps. In a packed row `starts` is nonzero where a document begins.

  Attributes:
    reverse: whether to read rows from the last step; y is in the order of x.
    impl: how to run over time, one of the cell's: 'auto' chooses for the
      device, 'native' is C++ on a CPU, 'scan' runs step by step.
    precision: a key of ops.precision.POLICIES, or 'auto': the format of x.
      Parameters and states are float32 in all.
    remat_every: steps between stored states; the backward pass recomputes those
      between. 0: all are stored.
  """

  _: dataclasses.KW_ONLY
  reverse: bool = False
  impl: str = 'auto'
  precision: str = 'auto'
  remat_every: int = 0

  @nn.nowrap
  def cell_options(self) -> dict[str, Any]:
    """Returns the options of the cell: the layer's own fields."""
    common = {field.name for field in dataclasses.fields(Layer)} | {'features'}
    return {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
      if field.name not in common
    }

  @nn.nowrap
  def init_state(self, B: int, inputs: int = 0) -> PyTree:
    """Returns the state before a document: zeros, for B rows.

    Args:
      B: rows.
      inputs: D, where it differs from `features`; only a state with inputs in
        it, QRNN's, depends on it.

    Raises:
      InputError: a bad option.
    """
    # Of no scope: a model's own methods may call this.
    return self._make(inputs, 'float32', parent=None).init_state(B)

  def __call__(
    self,
    x: jax.Array,
    *,
    lengths: jax.Array | None = None,
    starts: jax.Array | None = None,
  ) -> jax.Array:
    """Runs over rows that have no past.

    Args:
      x: BxLxD.
      lengths: steps before the padding, B; None: all.
      starts: nonzero where a document begins, BxL; None: no packed rows.

    Returns:
      y_BxLxF, 0 at the padding.

    Raises:
      InputError: a bad option, or arrays whose shapes don't fit.
      NotImplementedError: `impl` can't run here.
    """
    if self.reverse:
      return self.scan(None, x, lengths=lengths, starts=starts)[1]
    rows = rows_lib.of(x, lengths, starts)
    rows = rows.cleared()
    # Steps don't see the padding after them.
    _, y = self.scan(None, rows.x, starts=rows.starts)
    return rows.clear(y)

  def scan(
    self,
    state: PyTree | None,
    x: jax.Array,
    *,
    lengths: jax.Array | None = None,
    starts: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Runs over rows from a state: two halves equal the whole.

    Padded rows that continue a state run step by step.

    Args:
      state: before the first step that is read; None: zeros.
      x: BxLxD.
      lengths: steps before the padding, B; None: all.
      starts: nonzero where a document begins, BxL; None: no packed rows.

    Returns:
      (state after the last real step that is read, y_BxLxF, 0 at the padding).

    Raises:
      InputError: a bad option, or arrays whose shapes don't fit.
      NotImplementedError: `impl` can't run here.
    """
    rows = rows_lib.of(x, lengths, starts)
    cell = self._cell(rows.x)
    if state is not None:
      _check_state(cell, state, len(rows.x))
    return rows_lib.run(cell, state, rows, self.reverse)

  def step(
    self, state: PyTree | None, x: jax.Array
  ) -> tuple[PyTree, jax.Array]:
    """Runs one step.

    Args:
      state: before the step; None: zeros.
      x: BxD.

    Returns:
      (state, y_BxF).

    Raises:
      InputError: a bad option, or arrays whose shapes don't fit.
    """
    if x.ndim != 2:
      errors.refuse('x.shape', x.shape, 'give BxD; `scan` reads BxLxD')
    state, y = self.scan(state, x[:, None])
    return state, y[:, 0]

  @nn.compact
  def _cell(self, x):
    """Returns the cell for inputs like x, in the layer's scope."""
    name = self.precision
    if name == 'auto':
      name = x.dtype.name if x.dtype.name in precision.POLICIES else 'float32'
    cell = self._make(x.shape[-1], name, parent=self)
    nn.share_scope(self, cell)
    return cell

  @nn.nowrap
  def _make(self, inputs, policy, parent):
    layer = f'layers.{type(self).__name__}'
    if self.features < 1:
      errors.refuse(f'{layer}: features', self.features, 'give 1 or more')
    if self.remat_every < 0:
      errors.refuse(f'{layer}: remat_every', self.remat_every, 'give 0 or more')
    if policy not in precision.POLICIES:
      known = ('auto', *precision.POLICIES)
      errors.refuse(f'{layer}: precision', policy, f'choose one of {known}')
    plan = base.Plan(self.impl, remat_every=self.remat_every)
    module = config_lib.load('cells', self.cell, 'model.cell')
    try:
      options = values.build(module.Config, self.cell_options(), '')
      options = _resolved(self.cell, options, self.features, plan, policy)
    except errors.InputError as error:
      raise errors.InputError(f'{layer}: {error}') from None
    formats = precision.POLICIES[policy]
    return module.Cell(
      options, self.features, plan, formats, inputs=inputs, parent=parent
    )


class Recurrence(Layer):
  """Any cell as a layer, such as one of your own.

      layers.Recurrence('mypackage.mycell', 64, options={'taps': 4})

  Attributes:
    cell: a file of rnn_jax/cells, or a module with `Config` and `Cell`.
    features: F, the width of y.
    options: of the cell's Config. Where a default follows from the rest of a
      run's config, it is that of the default config: give it a value.
  """

  cell: str
  features: int
  _: dataclasses.KW_ONLY
  options: Mapping[str, Any] = flax.core.FrozenDict()

  def __post_init__(self) -> None:
    # nnx.jit hashes the modules that it passes through.
    self.options = flax.core.FrozenDict(self.options)
    super().__post_init__()

  @nn.nowrap
  def cell_options(self) -> dict[str, Any]:
    return dict(self.options)


@functools.cache
def _resolved(name, options, features, plan, policy):
  """Returns checked options, with the cell's own defaults filled in."""
  config = config_lib.Config(
    data=Data(),
    model=config_lib.Model(cell=name, width=features),
    cell=options,
    recurrence=config_lib.Recurrence(impl=plan.impl),
    remat=config_lib.Remat(every=plan.remat_every),
    train=config_lib.Train(precision=policy),
  )
  values.check(options, 'cell.')
  conditions.check(config, 'cell')
  options.check(config)
  return options.resolve(config)


def _check_state(cell, state, B):
  want = jax.eval_shape(lambda: cell.init_state(B))
  got, want = (jax.tree.map(jnp.shape, tree) for tree in (state, want))
  if got != want:
    errors.refuse('state', got, f'give shapes {want}, those of init_state')
