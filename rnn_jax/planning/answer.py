"""From a Request to what launch.plan prints."""

from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import report
from rnn_jax.planning import search
from rnn_jax.system import bounds
from rnn_jax.system import files
from rnn_jax.system import target


def answer(request: plan_lib.Request, confirm: bool, as_json: bool) -> str:
  """Returns the plan of a Request as text, or as JSON.

  Args:
    request: what to plan.
    confirm: whether real steps on this machine check it.
    as_json: whether the plan is JSON.

  Raises:
    InputError: the devices can't hold the batch, or no mesh fits.
  """
  _check_batch(request)
  name = request.device.name
  gpu = name if name in target.GPUS else ''
  with target.using(gpu):
    if request.sizes:
      plans, others = [plan_lib.make(request)], []
    else:
      plans, others = search.find(request)
  best = plans[0]
  by_cpu = plan_lib.by_cpu(request, best) if gpu else None
  measured = plan_lib.confirm(best) if confirm else None
  if as_json:
    return files.to_json(report.values(request, best, measured, by_cpu))
  parts = [report.text(request, best)]
  if by_cpu:
    parts.append(report.compared(best, by_cpu))
  if others:
    parts.append(report.losers(plans, others))
  if measured:
    parts.append(report.confirmed(best, measured))
  return '\n\n'.join(parts)


def _check_batch(request):
  data = request.config.data
  rows = request.rows or data.batch_size
  bounds.check(
    rows * data.length * request.config.model.width * 2,
    f'--rows={rows:,} of {data.length:,} tokens',
    'give fewer, or more devices',
    int(request.device.memory * request.devices),
  )
