"""A program that jax exported, with all that it takes to run it."""

import dataclasses
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
  """An exported program.

  Attributes:
    name: of the program's file.
    exported: the program.
    tensors: {name of a file: its arrays by name}.
    facts: more entries of interface.json, JSON-ready.
    inputs: the names of the program's arguments.
    outputs: the names of its results; of one result, only its name.
    script: (path, name) of the script that runs it.
  """

  name: str
  exported: jax.export.Exported
  tensors: dict[str, dict[str, np.ndarray]]
  facts: dict[str, Any]
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  script: tuple[str, str]

  def interface(self, batch_size: int) -> dict[str, Any]:
    """Returns the content of interface.json."""
    exported = self.exported
    arguments, _ = _described(exported.in_tree, exported.in_avals)
    results = _described(exported.out_tree, exported.out_avals)
    results = results if len(self.outputs) > 1 else (results,)
    return {
      'batch_size': batch_size,
      'platforms': list(exported.platforms),
      **self.facts,
      'jax': jax.__version__,
      'calling_convention': exported.calling_convention_version,
      'inputs': dict(zip(self.inputs, arguments, strict=True)),
      'outputs': dict(zip(self.outputs, results, strict=True)),
    }


def _described(tree, avals):
  """Returns a tree of texts such as 'float32[2, 21]'."""
  return jax.tree.map(
    lambda aval: f'{aval.dtype}{list(aval.shape)}',
    jax.tree.unflatten(tree, avals),
  )
