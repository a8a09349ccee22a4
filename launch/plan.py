"""Plans training on devices that are not here, by compiling for as many.

    python -m launch.plan --config=configs/chatgot.py:gpt2 --rows=2048 \\
        --mesh=data=64,fsdp=8 --device=h200

The real training step is compiled for so many virtual devices of the CPU; what
each would compute, send and hold is read from the program. Stated figures of
the device make a step's time, tokens a second and the scaling efficiency of it.
With --devices and without --mesh the best mesh is searched for. --confirm runs
real steps beside: --device=cpu is this machine, measured on the spot.
"""

import json

from absl import flags
from ml_collections import config_flags

from launch import command

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'A file of configs/; each key of it is a flag too.'
)
MESH = flags.DEFINE_string('mesh', '', 'AXIS=SIZE,...; empty: searched for.')
DEVICE = flags.DEFINE_string('device', '', 'h100, h200, a100, v5e or cpu.')
DEVICES = flags.DEFINE_integer('devices', 0, 'How many.', lower_bound=0)
ROWS = flags.DEFINE_integer(
  'rows', 0, 'Rows of the whole batch; 0: as the config says.', lower_bound=0
)
LENGTH = flags.DEFINE_integer(
  'length', 0, 'Tokens of a row; 0: data.length.', lower_bound=0
)
EFFICIENCY = flags.DEFINE_float(
  'efficiency', 0.4, 'Share of the peak that is assumed, in (0, 1].'
)
CONFIRM = flags.DEFINE_bool('confirm', False, 'Run real steps here as well.')
JSON = flags.DEFINE_bool('json', False, 'Print the plan as JSON alone.')


def main(argv):
  from rnn_jax import errors
  from rnn_jax.planning import devices
  from rnn_jax.planning import plan
  from rnn_jax.planning import program
  from rnn_jax.planning import report
  from rnn_jax.planning import search
  from rnn_jax.profiling import subject

  del argv
  if CONFIG.value is None:
    raise errors.InputError('--config is missing: name a file of configs/')
  if not 0 < EFFICIENCY.value <= 1:
    raise errors.InputError(
      f'--efficiency={EFFICIENCY.value}: give a share in (0, 1]'
    )
  devices.check(DEVICE.value)
  sizes = plan.parse_mesh(MESH.value)
  count = plan.count(sizes, DEVICES.value)
  config = subject.parse(CONFIG.value, LENGTH.value)
  program.claim(count)
  request = plan.Request(
    config=config,
    sizes=sizes,
    devices=count,
    device=devices.find(DEVICE.value),
    rows=ROWS.value,
    efficiency=EFFICIENCY.value,
  )
  plans, others = ([plan.make(request)], []) if sizes else search.find(request)
  best = plans[0]
  measured = plan.confirm(best) if CONFIRM.value else None
  if JSON.value:
    print(json.dumps(report.values(request, best, measured)))
    return
  print(report.text(request, best))
  if others:
    print(f'\n{report.losers(plans, others)}')
  if measured:
    print(f'\n{report.confirmed(best, measured)}')


if __name__ == '__main__':
  command.run(main)
