"""The rules of the config's sections `optimizer` and `schedule`."""

import operator
import re

from rnn_jax import errors

CUTTING = 'fsdp', 'pipe', 'tensor'  # axes that share parameters
WHOLE = {'kfac': 'inverses', 'shampoo': 'roots'}  # what cut ones have not
WITH_MOMENTS = ('adamw',)  # optimizers that take `optimizer.moments`
# Keys that mean something to these alone; others leave them at their default.
OWN = {
  'optimizer.nesterov': ('lars', 'muon', 'sgd'),
  'optimizer.trust': ('lars',),
  'optimizer.longest_side': ('kfac', 'shampoo'),
  'optimizer.roots_every': ('kfac', 'shampoo'),
  'optimizer.damping': ('kfac',),
  'optimizer.grafting': ('shampoo',),
  'schedule.decay_steps': ('stable_decay',),
  'schedule.cycle_steps': ('cyclical', 'one_cycle'),
  'schedule.low_learning_rate': ('cyclical', 'one_cycle'),
}
CYCLES = ('cyclical', 'one_cycle')  # schedules that rise by themselves
FALLING = ('linear', 'plateau', 'stable_decay')  # to schedule.final_...
PATTERNS = ('multipliers', 'weight_decays', 'frozen')


def check(config):
  """Checks what a Config says of its optimizer and its schedule.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  _check_own(config)
  _check_patterns(config.optimizer)
  _check_optimizer(config)
  _check_steps(config)
  if config.schedule.name == 'plateau':
    _check_plateau(config)
  _check_rates(config)


def _check_own(config):
  for key, names in OWN.items():
    section, _, field = key.partition('.')
    options = getattr(config, section)
    value, default = getattr(options, field), getattr(type(options)(), field)
    if value != default and options.name not in names:
      errors.refuse(
        key,
        value,
        f'{section}.name={options.name!r} has none: leave it at {default!r}, '
        f'or choose of {names}',
      )


def _check_patterns(options):
  for key in PATTERNS:
    for given in getattr(options, key):
      pattern = given if isinstance(given, str) else given[0]
      try:
        re.compile(pattern)
      except re.error as error:
        errors.refuse(
          f'optimizer.{key}', pattern, f'no regular expression ({error})'
        )
  for pattern, value in options.multipliers:
    if value <= 0:
      errors.refuse(
        'optimizer.multipliers',
        (pattern, value),
        'give a number above 0; what is not to change goes to optimizer.frozen',
      )
  for pattern, value in options.weight_decays:
    if value < 0:
      errors.refuse(
        'optimizer.weight_decays', (pattern, value), 'give 0 or more'
      )


def _check_optimizer(config):
  options, schedule = config.optimizer, config.schedule
  if options.moments != 'float32' and options.name not in WITH_MOMENTS:
    errors.refuse(
      'optimizer.moments',
      options.moments,
      f"optimizer.name={options.name!r} has its own state: give 'float32', "
      f'or one of {WITH_MOMENTS}',
    )
  if options.name == 'shampoo' and not options.eps:
    errors.refuse(
      'optimizer.eps',
      options.eps,
      "optimizer.name='shampoo' takes roots of sums that begin with it: give a "
      'number above 0',
    )
  cut = [axis for axis in CUTTING if getattr(config.mesh, axis) != 1]
  if options.name in WHOLE and cut:
    errors.refuse(
      f'mesh.{cut[0]}',
      getattr(config.mesh, cut[0]),
      f'optimizer.name={options.name!r} takes {WHOLE[options.name]} of whole '
      'matrices: give 1 and share rows alone, mesh.data, or another optimizer',
    )
  if options.name == 'kfac':
    _check_kfac(config.mesh)
  if options.name != 'schedule_free':
    return
  if schedule.name != 'constant':
    errors.refuse(
      'schedule.name',
      schedule.name,
      "optimizer.name='schedule_free' averages instead of lowering the rate: "
      "give 'constant', with a warm-up",
    )
  if not options.b1:
    errors.refuse(
      'optimizer.b1',
      options.b1,
      "optimizer.name='schedule_free' takes gradients between its average and "
      'its last point: give a number above 0',
    )


def _check_kfac(mesh):
  if any('data' in rule.partition('=')[2].split('+') for rule in mesh.rules):
    errors.refuse(
      'mesh.rules',
      mesh.rules,
      "optimizer.name='kfac' has factors of whole kernels: cut no letter over "
      "'data', or take another optimizer",
    )
  if mesh.compression:
    errors.refuse(
      'mesh.compression',
      mesh.compression,
      "optimizer.name='kfac' adds up its factors over devices as they are, "
      "which are more numbers than the gradients: give ''",
    )


def _check_steps(config):
  schedule, steps = config.schedule, config.train.steps
  warmup = schedule.warmup_steps
  if schedule.name in CYCLES and warmup:
    errors.refuse(
      'schedule.warmup_steps',
      warmup,
      f'schedule.name={schedule.name!r} rises by itself: give 0',
    )
  if warmup > steps:
    errors.refuse(
      'schedule.warmup_steps', warmup, f'give at most train.steps={steps}'
    )
  if schedule.decay_steps > steps - warmup:
    errors.refuse(
      'schedule.decay_steps',
      schedule.decay_steps,
      f'give at most train.steps - schedule.warmup_steps = {steps - warmup}',
    )
  if schedule.cycle_steps == 1:
    errors.refuse(
      'schedule.cycle_steps', 1, 'give 2 or more, up and down; or 0'
    )
  if schedule.name == 'one_cycle' and schedule.cycle_steps > steps:
    errors.refuse(
      'schedule.cycle_steps',
      schedule.cycle_steps,
      f'give at most train.steps={steps}',
    )


def _check_plateau(config):
  evaluate, schedule = config.evaluate, config.schedule
  if not evaluate.every:
    errors.refuse(
      'evaluate.every', 0, "schedule.name='plateau' needs evaluations"
    )
  if 0 < evaluate.patience <= schedule.patience:
    errors.refuse(
      'evaluate.patience',
      evaluate.patience,
      'the run would stop before the rate is lowered: give more than '
      f'schedule.patience={schedule.patience}, or 0',
    )


def _check_rates(config):
  """A rate that falls starts no lower than it ends; cycles begin above 0."""
  name = config.schedule.name
  if name in CYCLES and not config.schedule.low_learning_rate:
    errors.refuse(
      'schedule.low_learning_rate',
      config.schedule.low_learning_rate,
      f'schedule.name={name!r} begins with it: give a number above 0',
    )
  final, low = 'schedule.final_learning_rate', 'schedule.low_learning_rate'
  peak = 'optimizer.learning_rate'
  pairs = [(final, peak)] * (name in FALLING) + [(low, peak)] * (name in CYCLES)
  pairs += [(final, low)] * (name == 'one_cycle')
  for less, more in pairs:
    value, most = (operator.attrgetter(key)(config) for key in (less, more))
    if value > most:
      errors.refuse(
        less,
        value,
        f'schedule.name={name!r} lowers the rate: give at most {more}={most!r}',
      )
