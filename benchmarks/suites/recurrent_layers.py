"""One layer of LSTM or GRU, ours and PyTorch's, by (B, L, D).

Training is a forward and a backward pass, with the gradients of the parameters
and of x; stepping is L steps, one after the other, each from the state that the
one before left. Cases that are compared follow one another, so that a change of
the machine's speed meets all of them. Layers that PyTorch lacks are compared
with our scan over steps. PyTorch steps by its layer, by its cell, and by its
cell through torch.compile, which leaves whole layers as they are.

  python -m benchmarks.run --suite=recurrent_layers
"""

import functools
import itertools
from collections.abc import Sequence

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

CELLS = ('lstm', 'gru')
TRAINING = (
  [32, 128, 128],
  [32, 512, 128],
  [32, 4096, 128],
  [1, 4096, 128],
  [1, 16384, 128],
  [32, 128, 256],
)
STEPPING = ([1, 512, 128], [32, 512, 128], [1, 512, 256], [32, 512, 256])
KINDS = {  # shapes, and our impls
  'training': (TRAINING, ('native', 'scan')),
  'stepping': (STEPPING, ('auto',)),
}
CELL_FORMS = {'cell': False, 'compiled cell': True}  # PyTorch's, for stepping
OURS = {  # cells that PyTorch lacks, and their options
  'rhn': ('rhn', {}),
  "gru with reset='before'": ('gru', {'reset': 'before'}),
  'min_lstm': ('min_lstm', {}),
  'slstm': ('slstm', {}),
}
OURS_TRAINING = ([32, 512, 128], [1, 4096, 128])


def cases(quick: bool) -> list[case.Case]:
  """Training and stepping of each cell at each shape: PyTorch, then ours."""
  return [*_beside_torch(quick), *_of_ours(quick)]


def _beside_torch(quick):
  for cell, (what, (shapes, impls)) in itertools.product(CELLS, KINDS.items()):
    for shape in shapes:
      name = _name(what, cell, shape)
      base, size = f'{name}, PyTorch', {'cell': cell, 'shape': shape}
      forms = CELL_FORMS if what == 'stepping' else {}
      yield _case(base, f'{what}_of_torch', size, quick)
      for form, compiled in forms.items():
        theirs = size | {'compiled': compiled}
        workload = f'{what}_of_torch_cell'
        yield _case(f'{base}, {form}', workload, theirs, quick, base)
      for impl in impls:
        ours = size | {'impl': impl}
        yield _case(f'{name}, {impl}', what, ours, quick, base)


def _of_ours(quick):
  for cell, (file, options) in OURS.items():
    for shape in OURS_TRAINING:
      name = _name('training', cell, shape)
      for impl in ('scan', 'native'):
        ours = {'cell': file, 'shape': shape, 'impl': impl, 'options': options}
        yield _case(f'{name}, {impl}', 'training', ours, quick, f'{name}, scan')


def _case(name, workload, parameters, quick, base=''):
  small = {'shape': [2, 4, 8]} if quick else {}
  workload = f'suites.recurrent_layers.{workload}'
  return case.Case(name, workload, parameters | small, base=base)


def _name(what, cell, shape):
  return f'{what}: {cell}, {"x".join(map(str, shape))}'


def training(
  repeats: int,
  cell: str,
  shape: Sequence[int],
  impl: str,
  options: tables.Row | None = None,
) -> tables.Row:
  """Seconds of both passes, and XLA's figures of the program."""
  import jax
  import jax.numpy as jnp

  from benchmarks.workloads import programs

  layer, variables, x_BxLxD = _make(cell, shape, impl, options or {})
  state, dy_BxLxD = layer.init_state(shape[0]), jnp.cos(x_BxLxD)

  @jax.jit
  def both(variables, x_BxLxD):
    def forward(variables, x_BxLxD):
      return layer.apply(variables, state, x_BxLxD)[1]

    y_BxLxD, back = jax.vjp(forward, variables, x_BxLxD)
    return y_BxLxD, back(dy_BxLxD)

  program, values = programs.compile_ahead(both, variables, x_BxLxD)
  run = programs.run(program, variables, x_BxLxD)
  return values | measure.repeat(run, repeats, 3)


def stepping(
  repeats: int, cell: str, shape: Sequence[int], impl: str
) -> tables.Row:
  """Seconds of L steps within one program, and of each."""
  import jax

  from benchmarks.workloads import programs

  layer, variables, x_BxLxD = _make(cell, shape, impl, {})

  @jax.jit
  def steps(variables, x_LxBxD):
    def turn(state, x_BxD):
      state, y_Bx1xD = layer.apply(variables, state, x_BxD[:, None])
      return state, y_Bx1xD[:, 0]

    return jax.lax.scan(turn, layer.init_state(shape[0]), x_LxBxD)

  arguments = variables, x_BxLxD.swapaxes(0, 1)
  program, values = programs.compile_ahead(steps, *arguments)
  values |= measure.repeat(programs.run(program, *arguments), repeats, 3)
  return values | {'seconds_per_step': values['median'] / shape[1]}


def _make(cell, shape, impl, options):
  """(the layer, its variables, an input)."""
  import importlib

  import jax

  from rnn_jax.cells import base

  module = importlib.import_module(f'rnn_jax.cells.{cell}')
  B, _, D = shape
  layer = module.Cell(module.Config(**options), D, base.Plan(impl))
  x_BxLxD = jax.random.normal(jax.random.key(0), shape)
  init = jax.jit(layer.init)
  first = x_BxLxD[:, :1]
  return layer, init(jax.random.key(1), layer.init_state(B), first), x_BxLxD


def training_of_torch(
  repeats: int, cell: str, shape: Sequence[int]
) -> tables.Row:
  """Seconds of both passes of torch.nn.LSTM or torch.nn.GRU."""
  layer, x_BxLxD = _make_torch(cell, shape)
  x_BxLxD.requires_grad_()
  dy_BxLxD = x_BxLxD.detach().cos()

  def run():
    layer.zero_grad()
    x_BxLxD.grad = None
    layer(x_BxLxD)[0].backward(dy_BxLxD)

  return measure.repeat(run, repeats, 3)


def stepping_of_torch(
  repeats: int, cell: str, shape: Sequence[int]
) -> tables.Row:
  """Seconds of L steps, and of each."""
  import torch

  layer, x_BxLxD = _make_torch(cell, shape)
  steps = x_BxLxD.split(1, 1)

  def run():
    state = None
    with torch.inference_mode():
      for x_Bx1xD in steps:
        _, state = layer(x_Bx1xD, state)

  values = measure.repeat(run, repeats, 3)
  return values | {'seconds_per_step': values['median'] / shape[1]}


def stepping_of_torch_cell(
  repeats: int, cell: str, shape: Sequence[int], compiled: bool
) -> tables.Row:
  """The same with torch.nn.LSTMCell or torch.nn.GRUCell."""
  import torch

  layer, x_BxLxD = _make_torch(f'{cell}_cell', shape)
  steps = x_BxLxD.unbind(1)
  step = torch.compile(layer) if compiled else layer
  zeros = torch.zeros(shape[0], shape[-1])

  def run():
    state = (zeros, zeros) if cell == 'lstm' else zeros
    with torch.inference_mode():
      for x_BxD in steps:
        state = step(x_BxD, state)

  values = measure.repeat(run, repeats, 3)
  return values | {'seconds_per_step': values['median'] / shape[1]}


def _make_torch(kind, shape):
  import torch

  torch.manual_seed(0)
  torch.set_num_threads(measure.cores())
  make = {
    'lstm': functools.partial(torch.nn.LSTM, batch_first=True),
    'gru': functools.partial(torch.nn.GRU, batch_first=True),
    'lstm_cell': torch.nn.LSTMCell,
    'gru_cell': torch.nn.GRUCell,
  }[kind]
  return make(shape[-1], shape[-1]), torch.randn(shape)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Medians: a line for each cell and shape.

  Speed is PyTorch's time over ours, of its fastest form.
  """
  yield _behind(rows)
  for what, (shapes, impls) in KINDS.items():
    forms = CELL_FORMS if what == 'stepping' else ()
    head = [f'{what}, (B, L, D)', 'PyTorch', *(f'its {x}' for x in forms)]
    for impl in impls:
      head += [f"ours, '{impl}'", 'speed']
    names = [_name(what, cell, shape) for cell in CELLS for shape in shapes]
    lines = [_line(rows, name, impls, forms) for name in names]
    yield tables.table(' | '.join(head), lines)
  head = "training, (B, L, D) | ours, 'scan' | ours, 'native' | speed"
  names = [_name('training', x, shape) for x in OURS for shape in OURS_TRAINING]
  yield tables.table(head, [_line_of_ours(rows, name) for name in names])
  yield tables.unmeasured(cases(False), rows)


def _behind(rows):
  """Where PyTorch is faster than our fastest form, and how many times."""
  slower, measured = [], 0
  for what, (shapes, impls) in KINDS.items():
    theirs = ['PyTorch']
    theirs += [f'PyTorch, {x}' for x in CELL_FORMS] * (what == 'stepping')
    for name in (_name(what, x, shape) for x in CELLS for shape in shapes):
      best = _fastest(rows, name, theirs)
      ratio = tables.ratio(_fastest(rows, name, impls), best)
      measured += ratio is not None
      if ratio is not None and ratio > 1:
        slower.append(f'{name} ({tables.times(ratio)})')
  faster = '; '.join(slower) or 'none'
  return f'Cases where PyTorch is faster, of {measured}: {faster}.'


def _fastest(rows, name, forms):
  given = (tables.good(rows, f'{name}, {form}') for form in forms)
  return min(filter(None, given), key=_median, default=None)


def _line(rows, name, impls, forms):
  theirs = ['PyTorch', *(f'PyTorch, {form}' for form in forms)]
  times = (_time(tables.good(rows, f'{name}, {form}')) for form in theirs)
  line = [name.partition(': ')[2], *times]
  best = _fastest(rows, name, theirs)
  for impl in impls:
    ours = tables.good(rows, f'{name}, {impl}')
    line += [_time(ours), tables.speed(ours, best)]
  return line


def _median(row):
  return row['median']


def _line_of_ours(rows, name):
  scan, native = (
    tables.good(rows, f'{name}, {impl}') for impl in ('scan', 'native')
  )
  speed = tables.speed(native, scan)
  return [name.partition(': ')[2], _time(scan), _time(native), speed]


def _time(row):
  """Of both passes, or of one step."""
  if not row:
    return '-'
  return tables.seconds(row.get('seconds_per_step', row['median']))
