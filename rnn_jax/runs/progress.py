"""What the terminal shows of a run: tables, a progress bar, lines."""

import math
import sys

import jax
import tqdm

from rnn_jax.parallel import placement

SCORES = (  # name, digits, unit
  ('loss', 4, ' nats'),
  ('perplexity', 3, ''),
  ('accuracy', 4, ''),
)


def parameter_table(params):
  """Names, shapes and sizes of all parameters, with the total.

  Where devices share them, also over which axes of the mesh each is cut.
  """
  leaves = jax.tree.leaves_with_path(params)
  rows = [
    (
      '/'.join(key.key for key in path),
      'x'.join(map(str, leaf.shape)),
      f'{math.prod(leaf.shape):,}',
      _cut(leaf),
    )
    for path, leaf in leaves
  ]
  total = sum(math.prod(leaf.shape) for _, leaf in leaves)
  rows.append(('total', '', f'{total:,}', ''))
  widths = [max(len(row[i]) for row in rows) for i in range(3)]
  return '\n'.join(
    f'  {name:<{widths[0]}}  {shape:<{widths[1]}}  {size:>{widths[2]}}'
    f'  {cut}'.rstrip()
    for name, shape, size, cut in rows
  )


def placement_table(state, gradients):
  """Bytes of each device, of a train state and of its gradients.

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
    share = f'{own / whole:.1%}' if whole else '-'
    lines.append(f'  {name:<15}  {own:>15,}  {whole:>15,}  {share:>6}')
  header = (
    f'  {"":<15}  {"bytes a device":>15}  {"all of it":>15}  {"share":>6}'
  )
  return '\n'.join([header, *lines])


def _cut(leaf):
  sharding = getattr(leaf, 'sharding', None)
  spec = getattr(sharding, 'spec', ())
  if not any(spec) or sharding.num_devices == 1:
    return ''
  return f'cut {" x ".join(str(axes or "-") for axes in spec)}'.replace("'", '')


def _shardings(tree):
  return jax.tree.map(lambda leaf: leaf.sharding, tree)


class Display:
  """A progress bar on a terminal; a line at each report elsewhere."""

  def __init__(self, steps, step):
    self._steps = steps
    self._bar = tqdm.tqdm(
      total=steps,
      initial=step,
      unit='step',
      dynamic_ncols=True,
      disable=not sys.stderr.isatty(),
    )

  def advance(self):
    self._bar.update()

  def report(self, step, text):
    """Shows the state of the training at a step."""
    if self._bar.disable:
      print(f'step {step}/{self._steps}  {text}', flush=True)
    else:
      self._bar.set_postfix_str(text)

  def say(self, text):
    """Prints a line that stays."""
    if self._bar.disable:
      print(text, flush=True)
    else:
      self._bar.write(text)

  def close(self):
    self._bar.close()


class NoDisplay:
  """What a process has that leaves telling to another."""

  def advance(self):
    pass

  def report(self, step, text):
    pass

  def say(self, text):
    pass

  def close(self):
    pass


def evaluation_table(row):
  """The rows of `evaluate.evaluate_run` for a reader.

  Scores that have an interval are left to evaluation.run.table.
  """
  lines = [
    f'{row["split"]} split, step {row["step"]}: {row["documents"]:,} '
    f'documents, {row["tokens"]:,} predictions'
  ]
  alone = row.keys() - row.get('intervals', {}).keys()
  for name, digits, unit in SCORES:
    if name in alone:
      lines.append(f'  {name:<14} {row[name]:.{digits}f}{unit}')
  if 'exact' in row:
    lines.append(f'  exact          {row["exact"]:.4f}   whole answers')
  if 'bits_per_byte' in row:
    lines += [
      f'  bits per byte  {row["bits_per_byte"]:.4f}   this model',
      f'                 {row["gzip"]:.4f}   gzip -9',
      f'                 {row["xz"]:.4f}   xz -9e',
    ]
  return '\n'.join(lines)
