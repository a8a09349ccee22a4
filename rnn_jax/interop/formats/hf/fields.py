"""Keys of a config.json that are options of ours, both ways."""

import math
import operator
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table

ACTIVATIONS = {  # hidden_act and the gated MLP that has it
  'silu': 'swiglu',
  'swish': 'swiglu',
  'gelu': 'geglu',
  'gelu_pytorch_tanh': 'geglu_tanh',
}


class Field(NamedTuple):
  """A key of config.json that is one of our options.

  It has the type of its default, and is a size where that is None or whole.
  """

  theirs: str
  ours: str  # 'model.width', or an option of a cell
  default: float | None = None  # None: the key must be there
  least: int = 1
  most: int = keys_lib.MAX_SIZE

  def read(self, keys: keys_lib.Keys) -> int | float | bool:
    """Returns the option."""
    if isinstance(self.default, bool):
      return keys.flag(self.theirs, self.default)
    if isinstance(self.default, float):
      return keys.number(self.theirs, self.default)
    return keys.whole(self.theirs, self.default, self.least, self.most)


def options(keys: keys_lib.Keys, fields: Iterable[Field]) -> dict[str, Any]:
  """Returns the options of ours that are keys of theirs."""
  return {field.ours: field.read(keys) for field in fields}


def describe(holder: Any, fields: Iterable[Field]) -> dict[str, Any]:
  """Returns the keys of theirs; `holder` is a Config, or that of a cell."""
  return {x.theirs: _value(holder, x.ours) for x in fields}


def _value(holder, ours):
  if ours == 'model.norm_epsilon' and not holder.model.norm_epsilon:
    return 1e-6 if holder.model.norm == 'rms' else 1e-5  # of the blocks
  return operator.attrgetter(ours)(holder)


def need(keys: keys_lib.Keys, values: Mapping[str, Any]) -> None:
  """Refuses keys that have other values than those that ours computes."""
  for name, value in values.items():
    keys.one_of(name, (value,), value)


def head(keys: keys_lib.Keys, tied: bool) -> dict[str, Any]:
  """Returns the options of the output head; `tied` unless the keys say."""
  tied = keys.flag('tie_word_embeddings', tied)
  return {
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
  }


def patterned(
  cells: Sequence[str],
  own: Mapping[str, Mapping[str, Any]],
  mlps: Sequence[str] = (),
) -> dict[str, Any]:
  """Returns the options of a pattern and of its cells.

  Args:
    cells: of all layers; the shortest pattern that they repeat is ours.
    own: options of each cell, which may have others.
    mlps: what follows the cell of each layer, as model.mlps has it; (): the
      same in all.
  """
  layers = [*zip(cells, mlps or cells, strict=True)]
  sizes = [n for n in range(1, len(layers) + 1) if len(layers) % n == 0]
  pattern = next(
    layers[:n] for n in sizes if layers[:n] * (len(layers) // n) == layers
  )
  several = len(pattern) > 1
  chosen, kinds = zip(*pattern, strict=True)
  differ = mlps and len({*kinds}) > 1
  return {
    **({'model.cells': chosen} if several else {'model.cell': chosen[0]}),
    **({'model.mlps': kinds} if differ else {}),
    'model.layers': len(cells),
    **{
      f'cell.{name}.{key}' if several else f'cell.{key}': value
      for name in dict.fromkeys(cells)
      for key, value in own[name].items()
    },
  }


def by_layer(
  keys: keys_lib.Keys,
  name: str,
  known: Iterable[str],
  layers: int,
  default: Callable[[], Sequence[str]],
) -> Sequence[str]:
  """Returns what a list of config.json says of each layer.

  Args:
    keys: of config.json.
    name: of the list.
    known: what may be in it.
    layers: their number.
    default: returns the list, unless the keys have it.
  """
  kinds = keys.names(name, [*known])
  kinds = default() if kinds is None else kinds
  if len(kinds) != layers:
    keys.refuse('num_hidden_layers', layers, f'{name} has {len(kinds)}')
  return kinds


def describe_cells(
  config: config_lib.Config,
  kinds: Mapping[str, str],
  describe: Mapping[str, Callable[[config_lib.Config], dict[str, Any]]],
) -> tuple[list[str], dict[str, Any]]:
  """Returns the kind of each layer of a hybrid, and the keys of its cells.

  Args:
    config: of the model.
    kinds: {a kind of layer: our cell}.
    describe: {our cell: what returns the keys of its options}.
  """
  keys: dict[str, Any] = {}
  for cell, described in describe.items():
    if cell in config.model.pattern:
      keys |= described(table.of_cell(config, cell))
  by_cell = {cell: kind for kind, cell in kinds.items()}
  cells = config.model.pattern * config.model.periods
  return [by_cell[cell] for cell in cells], keys


def activation(mlp: str, known: Mapping[str, str] = ACTIVATIONS) -> str:
  """Returns the first name of an MLP's activation; ours where it has none."""
  return next((act for act, ours in known.items() if ours == mlp), mlp)


def inverse(multiplier: float) -> float:
  """Returns the number whose inverse is this."""
  return solved(lambda x: 1 / x, multiplier, 1 / multiplier)


def solved(
  function: Callable[[float], float], value: float, near: float
) -> float:
  """Returns a number of which a function is exactly this value.

  Args:
    function: of a number.
    value: of the function.
    near: such a number but for rounding; it is returned if none next to it has
      exactly the value.
  """
  around = math.nextafter(near, -math.inf), math.nextafter(near, math.inf)
  candidates = round(near, 6), near, *around
  return next((x for x in candidates if x and function(x) == value), near)
