"""Formats a plan as text and as JSON."""

import re
from typing import Any

from rnn_jax.parallel import axes
from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import predict
from rnn_jax.planning import search

GIB = 2**30
SHOWN = 8  # candidates in the report
NOT_COUNTED = (
  "not counted: elementwise work and what activations take of the memory's "
  'bandwidth\n(both are in the assumed share of the peak), latency, input, '
  'checkpoints'
)


def text(request: plan_lib.Request, plan: plan_lib.Plan) -> str:
  """Returns the report on one plan."""
  made = plan.program
  precision = plan.workload.config.train.precision
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
  made, prediction, device = plan.program, plan.prediction, request.device
  worked = ', '.join(
    f'{n:.3g} {name} operations at {request.efficiency:.0%} (assumed) of '
    f'{device.peak(name) / 1e12:.4g} tera per second'
    for name, n in made.flops.items()
  )
  lines = [('work', seconds(prediction.work), worked)]
  if made.bubble:
    lines.append(
      ('', '', f'{made.bubble:.0%} of it the bubble of the pipeline')
    )
  for key, spent in prediction.sending.items():
    along = tuple(key.split('+')) if key else ()
    sent = ', '.join(
      f'{part.opcode} {part.bytes / 1e6:,.3g} MB'
      f' ({part.beside / part.bytes:.0%} during computation)'
      for part in made.sent
      if part.axes == along
    )
    link = predict.link(along, made.sizes, device) / 1e9
    lines.append(
      (key or 'itself', seconds(spent), f'{sent} at {link:.4g} GB/s')
    )
  size = made.memory
  verdict = 'fits' if prediction.fits else 'does NOT fit'
  account = (
    f'of {device.memory / GIB:,.1f} GiB, {predict.USABLE:.0%} usable: {verdict}'
    f' (arguments {size.arguments / GIB:.3g}, temporaries '
    f'{size.temporaries / GIB:.3g})'
  )
  lines.append(('memory', f'{size.total / GIB:.3g} GiB', account))
  return '\n'.join(f'{a:12}{b:>10}  {c}' for a, b, c in lines)


def _step(plan):
  prediction = plan.prediction
  lines = [
    ('', 'nothing overlaps', 'overlapped'),
    ('step', seconds(prediction.step), seconds(prediction.overlapped)),
    ('tokens per second', *(f'{n:,.0f}' for n in prediction.tokens)),
    ('scaling efficiency', *(f'{share:.1%}' for share in prediction.scaling)),
  ]
  table = '\n'.join(f'{a:20}{b:>18}{c:>22}' for a, b, c in lines)
  return f'{table}\n{NOT_COUNTED}'


def compared(plan: plan_lib.Plan, by_cpu: plan_lib.Plan) -> str:
  """Returns a plan beside what the CPU's compiler would have estimated."""
  lines = [
    (
      name,
      unit(real),
      unit(guess),
      f'{guess / real:.3g} times' if real else '-',
    )
    for name, unit, real, guess in (
      (name, unit, read(plan), read(by_cpu)) for name, unit, read in COMPARED
    )
  ]
  head = '', "target's compiler", "CPU's compiler", 'CPU over target'
  return '\n'.join(
    f'{a:24}{b:>18}{c:>18}{d:>18}' for a, b, c, d in (head, *lines)
  )


def losers(
  plans: list[plan_lib.Plan], candidates: list[search.Candidate]
) -> str:
  """Returns why the other meshes lose.

  It lists those that were compiled, the best of those that were estimated, and
  one for each reason to refuse a mesh.
  """
  best, *others = plans
  lines = [(mesh(plan), 'compiled', _why(plan, best)) for plan in others]
  compiled = {mesh(plan) for plan in plans}
  rest = [x for x in candidates if plan_lib.name(x.sizes) not in compiled]
  for one in [one for one in rest if not one.refused][:SHOWN]:
    why = f'a step of {seconds(one.step)}, mostly {one.longest}'
    lines.append((plan_lib.name(one.sizes), 'estimated', why))
  kinds = {}
  for one in rest:
    if one.refused:
      kinds.setdefault(re.sub(r'\d[\d.]*', '', one.refused), []).append(one)
  for first, *more in kinds.values():
    why = f'{first.refused} (and {len(more)} more)' if more else first.refused
    lines.append((plan_lib.name(first.sizes), 'refused', why))
  table = [f'{a:34}{b:10} {c}' for a, b, c in lines]
  return '\n'.join([f'{len(candidates)} meshes; why not', *table])


def _why(plan, best):
  prediction = plan.prediction
  if not prediction.fits:
    return f'needs {prediction.memory / GIB:.3g} GiB per device, too much'
  ahead = prediction.step / best.prediction.step - 1
  parts = {'work': prediction.work} | prediction.sending
  longest = max(parts, key=parts.get)
  sent = seconds(sum(prediction.sending.values()))
  return (
    f'a step of {seconds(prediction.step)}, {ahead:.1%} longer: mostly '
    f'{longest}, {sent} of sending'
  )


def confirmed(plan: plan_lib.Plan, measured: plan_lib.Measured) -> str:
  """Returns a measured step next to the predicted one."""
  size = plan.program.memory
  lines = (
    ('a step', seconds, measured.seconds, plan.prediction.step),
    ('state and batch', _mebibytes, measured.held, size.arguments),
    ('peak of memory', _mebibytes, measured.peak, size.total),
  )
  table = [
    f'{name:18}{unit(real):>12}{unit(predicted):>14}'
    f'{real / predicted:>8.3g} times'
    for name, unit, real, predicted in lines
  ]
  return '\n'.join([f'{"":18}{"measured":>12}{"predicted":>14}', *table])


def _mebibytes(value):
  return f'{value / 2**20:,.1f} MiB'


def seconds(value: float) -> str:
  """Returns seconds with three digits, in a suitable unit."""
  for unit, size in (('s', 1.0), ('ms', 1e-3)):
    if value >= size:
      return f'{value / size:.3g} {unit}'
  return f'{value / 1e-6:.3g} us'


COMPARED = (
  ('memory', _mebibytes, lambda plan: plan.program.memory.total),
  ('temporaries', _mebibytes, lambda plan: plan.program.memory.temporaries),
  ('sent', _mebibytes, lambda plan: plan.program.sent_bytes),
  ('during computation', _mebibytes, lambda plan: plan.program.beside_bytes),
  ('step, nothing overlaps', seconds, lambda plan: plan.prediction.step),
  ('step, overlapped', seconds, lambda plan: plan.prediction.overlapped),
)


def values(
  request: plan_lib.Request,
  plan: plan_lib.Plan,
  measured: plan_lib.Measured | None = None,
  by_cpu: plan_lib.Plan | None = None,
) -> dict[str, Any]:
  """Returns a plan as JSON-ready values."""
  made, prediction = plan.program, plan.prediction
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
    'sent_bytes': made.sent_bytes,
    'by_cpu': values(request, by_cpu) if by_cpu else None,
    'bubble': made.bubble,
    'memory': {
      **made.memory._asdict(),
      'total': made.memory.total,
      'of': request.device.memory,
      'fits': prediction.fits,
    },
    'seconds': {
      'work': prediction.work,
      'sending': prediction.sending,
      'step': prediction.step,
      'overlapped': prediction.overlapped,
      'compiling': made.seconds,
    },
    'tokens_per_second': prediction.tokens,
    'scaling_efficiency': prediction.scaling,
    'measured': measured._asdict() if measured else None,
  }
