"""Plans training on devices that this machine lacks.

    python -m launch.plan --config=chatgot:gpt2 --rows=2048 \\
        --mesh=data=64,fsdp=8 --target=h200

Compiles the real training step for that many GPUs, up to 512, and reads from
the program what each of them computes, sends and holds, and what travels while
it computes. Published figures of the device turn this into a step time, tokens
per second and scaling efficiency. With --devices and without --mesh, it
searches for the best mesh.

GPUs need the CUDA packages and no driver. For a TPU and for this machine's CPU
it compiles for virtual CPU devices. With --target=cpu, --confirm also runs real
steps.
"""

from absl import flags

from launch import command

PURPOSE = 'Measure'
CONFIG = command.define_config(required=True)
MESH = flags.DEFINE_string('mesh', '', 'AXIS=SIZE,...; empty: search for it.')
TARGET = flags.DEFINE_string(
  'target', '', 'h100, h200, b200, a100, l4, v5e or cpu.'
)
DEVICES = flags.DEFINE_integer(
  'devices', 0, 'Number of devices.', lower_bound=0, upper_bound=2**20
)
ROWS = flags.DEFINE_integer(
  'rows', 0, "Rows in the whole batch; 0: the config's.", lower_bound=0
)
LENGTH = flags.DEFINE_integer(
  'length', 0, 'Tokens in a row; 0: data.length.', lower_bound=0
)
EFFICIENCY = flags.DEFINE_float(
  'efficiency', 0.4, 'Assumed fraction of peak FLOP/s, in (0, 1].'
)
CONFIRM = flags.DEFINE_bool(
  'confirm', False, 'Also run real steps on this machine.'
)
JSON = flags.DEFINE_bool('json', False, 'Print only the plan, as JSON.')


def main(argv):
  from rnn_jax import errors
  from rnn_jax.planning import answer
  from rnn_jax.planning import plan
  from rnn_jax.planning import predict
  from rnn_jax.planning import program
  from rnn_jax.profiling import workload
  from rnn_jax.system import devices
  from rnn_jax.system import streams
  from rnn_jax.system import target

  del argv
  if not 0 < EFFICIENCY.value <= 1:
    raise errors.InputError(
      f'--efficiency={EFFICIENCY.value}: give a fraction in (0, 1]'
    )
  if command.MEMORY_FRACTION.value is not None:
    raise errors.InputError(
      f'--memory_fraction={command.MEMORY_FRACTION.value}: a plan uses '
      f'{predict.USABLE:.0%} of the memory: leave it out'
    )
  devices.check(TARGET.value)
  if CONFIRM.value and TARGET.value != 'cpu':
    raise errors.InputError(
      f'--target={TARGET.value}: --confirm runs steps on this machine: give '
      '--target=cpu, or drop it'
    )
  streams.stdout_is_the_result()
  sizes = plan.parse_mesh(MESH.value)
  count = plan.count(sizes, DEVICES.value)
  config = workload.parse(CONFIG.value, LENGTH.value)
  if TARGET.value in target.GPUS:
    target.check(TARGET.value)
  program.claim(count)
  request = plan.Request(
    config=config,
    sizes=sizes,
    devices=count,
    device=devices.find(TARGET.value),
    rows=ROWS.value,
    efficiency=EFFICIENCY.value,
  )
  print(answer.answer(request, CONFIRM.value, JSON.value))


if __name__ == '__main__':
  command.run(main)
