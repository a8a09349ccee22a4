"""A plan in words, and as JSON."""

import re

from rnn_jax.parallel import axes
from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import predict
from rnn_jax.planning import search

GIB = 2**30
SHOWN = 8  # candidates that are told of
NOT_COUNTED = (
  "not counted: elementwise work and what activations take of the memory's "
  'bandwidth\n(both are in the assumed share of the peak), latency, input, '
  "checkpoints. Memory is\nthe CPU compiler's account: fusions of another "
  'device may need less.'
)


def text(request: plan_lib.Request, plan: plan_lib.Plan) -> str:
  """Returns a page on one plan."""
  made = plan.program
  precision = plan.subject.config.train.precision
  head = (
    f'{made.parameters:,} parameters, {precision}; {made.rows:,} rows of '
    f'{made.length:,} tokens\n'
    f'mesh {mesh(plan)}: {made.devices:,} x {request.device.name}, compiled in '
    f'{made.seconds:.1f} s'
  )
  return '\n'.join([head, '', _a_device(request, plan), '', _step(plan)])


def mesh(plan: plan_lib.Plan) -> str:
  """Returns the mesh of a plan as --mesh takes it."""
  sizes = dict(zip(axes.NAMES, plan.program.sizes, strict=True))
  return plan_lib.name(sizes)


def _a_device(request, plan):
  made, found, device = plan.program, plan.prediction, request.device
  worked = ', '.join(
    f'{n:.3g} {name} operations at {request.efficiency:.0%} (assumed) of '
    f'{device.peak(name) / 1e12:.4g} tera a second'
    for name, n in made.flops.items()
  )
  lines = [('work', seconds(found.work), worked)]
  if made.bubble:
    lines.append(
      ('', '', f'{made.bubble:.0%} of it the bubble of the pipeline')
    )
  for key, spent in found.sending.items():
    along = tuple(key.split('+')) if key else ()
    told = ', '.join(
      f'{part.opcode} {part.bytes / 1e6:,.3g} MB'
      for part in made.sent
      if part.axes == along
    )
    link = predict.link(along, made.sizes, device) / 1e9
    lines.append(
      (key or 'itself', seconds(spent), f'{told} at {link:.4g} GB/s')
    )
  size = made.memory
  verdict = 'fits' if found.fits else 'does NOT fit'
  told = (
    f'of {device.memory / GIB:,.1f} GiB, {predict.USABLE:.0%} usable: {verdict}'
    f' (arguments {size.arguments / GIB:.3g}, temporaries '
    f'{size.temporaries / GIB:.3g})'
  )
  lines.append(('memory', f'{size.total / GIB:.3g} GiB', told))
  return '\n'.join(f'{a:12}{b:>10}  {c}' for a, b, c in lines)


def _step(plan):
  found = plan.prediction
  lines = [
    ('', 'nothing overlaps', "rows' axes overlap"),
    ('step', seconds(found.step), seconds(found.overlapped)),
    ('tokens a second', *(f'{n:,.0f}' for n in found.tokens)),
    ('scaling efficiency', *(f'{share:.1%}' for share in found.scaling)),
  ]
  told = '\n'.join(f'{a:20}{b:>18}{c:>22}' for a, b, c in lines)
  return f'{told}\n{NOT_COUNTED}'


def losers(plans: list[plan_lib.Plan], found: list[search.Candidate]) -> str:
  """Returns why the other meshes lose: those compiled, those estimated to come
  next, and one for each reason to refuse."""
  best, *others = plans
  lines = [(mesh(plan), 'compiled', _why(plan, best)) for plan in others]
  compiled = {mesh(plan) for plan in plans}
  rest = [one for one in found if plan_lib.name(one.sizes) not in compiled]
  for one in [one for one in rest if not one.refused][:SHOWN]:
    why = f'a step of {seconds(one.step)}, most of it {one.longest}'
    lines.append((plan_lib.name(one.sizes), 'estimated', why))
  kinds = {}
  for one in rest:
    if one.refused:
      kinds.setdefault(re.sub(r'\d[\d.]*', '', one.refused), []).append(one)
  for first, *more in kinds.values():
    told = f'{first.refused} (and {len(more)} more)' if more else first.refused
    lines.append((plan_lib.name(first.sizes), 'refused', told))
  told = [f'{a:34}{b:10} {c}' for a, b, c in lines]
  return '\n'.join([f'{len(found)} meshes; why not', *told])


def _why(plan, best):
  found = plan.prediction
  if not found.fits:
    return f'needs {found.memory / GIB:.3g} GiB a device, too much'
  ahead = found.step / best.prediction.step - 1
  parts = {'work': found.work} | found.sending
  longest = max(parts, key=parts.get)
  sent = seconds(sum(found.sending.values()))
  return (
    f'a step of {seconds(found.step)}, {ahead:.1%} longer: most of it '
    f'{longest}, {sent} of sending'
  )


def confirmed(plan: plan_lib.Plan, found: plan_lib.Measured) -> str:
  """Returns a measured step beside the predicted one."""
  size = plan.program.memory
  lines = (
    ('a step', seconds, found.seconds, plan.prediction.step),
    ('state and batch', _mebibytes, found.held, size.arguments),
    ('peak of memory', _mebibytes, found.peak, size.total),
  )
  told = [
    f'{name:18}{unit(real):>12}{unit(predicted):>14}'
    f'{real / predicted:>8.3g} times'
    for name, unit, real, predicted in lines
  ]
  return '\n'.join([f'{"":18}{"measured":>12}{"predicted":>14}', *told])


def _mebibytes(value):
  return f'{value / 2**20:,.1f} MiB'


def values(
  request: plan_lib.Request,
  plan: plan_lib.Plan,
  measured: plan_lib.Measured | None = None,
) -> dict:
  """Returns a plan as JSON-ready values."""
  made, found = plan.program, plan.prediction
  return {
    'mesh': dict(zip(axes.NAMES, made.sizes, strict=True)),
    'devices': made.devices,
    'device': request.device.name,
    'efficiency': request.efficiency,
    'parameters': made.parameters,
    'rows': made.rows,
    'length': made.length,
    'flops': made.flops,
    'sent': [part._asdict() for part in made.sent],
    'bubble': made.bubble,
    'memory': {
      **made.memory._asdict(),
      'total': made.memory.total,
      'of': request.device.memory,
      'fits': found.fits,
    },
    'seconds': {
      'work': found.work,
      'sending': found.sending,
      'step': found.step,
      'overlapped': found.overlapped,
      'compiling': made.seconds,
    },
    'tokens_per_second': found.tokens,
    'scaling_efficiency': found.scaling,
    'measured': measured._asdict() if measured else None,
  }


def seconds(value: float) -> str:
  """Returns seconds with three digits, in a unit that fits."""
  for unit, size in (('s', 1.0), ('ms', 1e-3)):
    if value >= size:
      return f'{value / size:.3g} {unit}'
  return f'{value / 1e-6:.3g} us'
