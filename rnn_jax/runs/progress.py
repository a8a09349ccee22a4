"""A run on the terminal: tables, a progress bar, lines."""

import math
import sys
from collections.abc import Mapping
from typing import Any

import jax
import tqdm

from rnn_jax.parallel import hosts
from rnn_jax.parallel import placement
from rnn_jax.system import activity

SCORES = (  # name, digits, unit
  ('loss', 4, ' {loss_unit}'),
  ('perplexity', 3, ''),
  ('accuracy', 4, ''),
)

PyTree = Any


def parameter_table(params: PyTree) -> str:
  """Returns names, shapes and sizes of all parameters, and the total.

  Where parameters are sharded, it also shows the axes of the mesh.
  """
  leaves = jax.tree.leaves_with_path(params)
  rows = [
    (
      '/'.join(key.key for key in path),
      'x'.join(map(str, leaf.shape)),
      f'{math.prod(leaf.shape):,}',
      _sharding(leaf),
    )
    for path, leaf in leaves
  ]
  total = sum(math.prod(leaf.shape) for _, leaf in leaves)
  rows.append(('total', '', f'{total:,}', ''))
  widths = [max(len(row[i]) for row in rows) for i in range(3)]
  return '\n'.join(
    f'  {name:<{widths[0]}}  {shape:<{widths[1]}}  {size:>{widths[2]}}'
    f'  {sharding}'.rstrip()
    for name, shape, size, sharding in rows
  )


def placement_table(state: Mapping[str, PyTree], gradients: PyTree) -> str:
  """Returns the bytes per device of a train state and of its gradients.

  Args:
    state: the entries of a training.train_state.TrainState, by name.
    gradients: the shardings of gradients, a tree like the parameters.
  """
  params, optimizer = state['params'], state['opt_state']
  rows = {
    'parameters': (params, _shardings(params)),
    'gradients': (params, gradients),
    'optimizer': (optimizer, _shardings(optimizer)),
    'recurrent state': (state['carry'], _shardings(state['carry'])),
  }
  lines = []
  for name, (tree, shardings) in rows.items():
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
    own = placement.device_bytes(tree, shardings)
    part = f'{own / whole:.1%}' if whole else '-'
    lines.append(f'  {name:<15}  {own:>16,}  {whole:>16,}  {part:>8}')
  header = (
    f'  {"":<15}  {"bytes per device":>16}  {"total":>16}  {"fraction":>8}'
  )
  return '\n'.join([header, *lines])


def _sharding(leaf):
  sharding = getattr(leaf, 'sharding', None)
  spec = getattr(sharding, 'spec', ())
  if not any(spec) or sharding.num_devices == 1:
    return ''
  names = ' x '.join(str(axes or '-') for axes in spec)
  return f'sharded {names}'.replace("'", '')


def _shardings(tree):
  return jax.tree.map(lambda leaf: leaf.sharding, tree)


def say(text: str) -> None:
  """Prints lines; only the first process does."""
  if hosts.is_first():
    print(text, flush=True)


# Without tqdm's estimate of the time left, which counts compilation.
BAR = '{percentage:3.0f}%|{bar:10}| {n_fmt}/{total_fmt}{postfix}'


def sample(prompt: str, text: str, is_reply: bool) -> str:
  """Returns a text after its prompt; a reply has a line of its own."""
  return f'> {prompt}\n{text.strip()}' if is_reply else f'{prompt}{text}'


class Display:
  """A progress bar on a terminal; elsewhere a line for each report."""

  def __init__(self, steps: int, step: int) -> None:
    self._steps = steps
    self._bar = tqdm.tqdm(
      total=steps,
      initial=step,
      unit='step',
      dynamic_ncols=True,
      bar_format=BAR,
      disable=not sys.stderr.isatty(),
    )
    if not self._bar.disable:
      activity.print_with(self._bar.write)

  def advance(self) -> None:
    self._bar.update()
    if not self._bar.disable:
      activity.spoke()

  def report(self, step: int, text: str) -> None:
    """Shows the state of the training at a step."""
    if self._bar.disable:
      print(f'step {step}/{self._steps}  {text}', flush=True)
    else:
      self._bar.set_postfix_str(text)
    activity.spoke()

  def say(self, text: str) -> None:
    """Prints a line that stays."""
    if self._bar.disable:
      print(text, flush=True)
    else:
      self._bar.write(text)
    activity.spoke()

  def close(self) -> None:
    activity.print_with(None)
    self._bar.close()


class NoDisplay:
  """The display of a process that isn't the first one: it shows nothing."""

  def advance(self) -> None:
    pass

  def report(self, step: int, text: str) -> None:
    pass

  def say(self, text: str) -> None:
    pass

  def close(self) -> None:
    pass


def evaluation_table(row: Mapping[str, Any]) -> str:
  """Returns the result of `evaluate.evaluate_run` as a table.

  evaluation.run.table shows the scores that have an interval.
  """
  part = row.get('fraction', 1)
  read = f', {part:.1%} of the split (evaluate.tokens)' if part < 1 else ''
  lines = [
    f'{row["split"]} split, step {row["step"]}: {row["documents"]:,} '
    f'documents, {row["tokens"]:,} predictions{read}'
  ]
  shown = row.keys() - row.get('intervals', {}).keys()
  for name, digits, unit in SCORES:
    if name in shown:
      of = unit.format(loss_unit=row.get('loss_unit', 'nats'))
      lines.append(f'  {name:<14} {row[name]:.{digits}f}{of}')
  if 'exact' in row:
    lines.append(f'  exact          {row["exact"]:.4f}   whole answers')
  if 'bits_per_byte' in row:
    lines.append(f'  bits per byte  {row["bits_per_byte"]:.4f}   this model')
  if 'gzip' in row:
    lines += [
      f'                 {row["gzip"]:.4f}   gzip -9',
      f'                 {row["xz"]:.4f}   xz -9e',
    ]
  return '\n'.join(lines)
