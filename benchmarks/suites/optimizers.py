"""Every optimizer on the default job: loss, bytes of state, seconds a step.

Each with two learning rates, the first steps of configs/stdlib_bytes.py: a
short warm-up and half a cosine down to a tenth of the rate (schedule_free: no
fall). All else is the job's, so what is told is how optimizers begin, at rates
that were chosen by hand, not which of them ends best.
"""

from benchmarks import cases as cases_lib

STEPS = 150
RATES = {  # name, and what tells it: what is set besides, and the rates
  'adamw': ({}, (1e-3, 3e-3)),
  'sgd': ({'nesterov': True}, (0.1, 0.3)),
  'lars': ({}, (1.0, 3.0)),
  'lamb': ({}, (3e-3, 1e-2)),
  'adabelief': ({}, (1e-3, 3e-3)),
  'radam': ({}, (3e-3, 1e-2)),
  'adafactor': ({}, (1e-2, 3e-2)),
  'lion': ({}, (3e-4, 1e-3)),
  'muon': ({'nesterov': True, 'b1': 0.95}, (3e-3, 1e-2)),
  'schedule_free': ({}, (3e-3, 1e-2)),
  'shampoo': ({}, (3e-4, 1e-3)),
  'shampoo ungrafted': ({'grafting': 'none'}, (1e-2, 3e-2)),
  'kfac': ({}, (3e-3, 1e-2)),
}
QUICK = ('adamw', 'schedule_free', 'shampoo', 'kfac')


def cases(quick):
  """Each optimizer at each of its rates."""
  small = {'steps': 4, 'width': 32} if quick else {'steps': STEPS}
  listed = [
    cases_lib.Case(
      f'{told}, {rate:g}',
      'optimizers.compare',
      {'changes': {'name': name, 'learning_rate': rate} | changes} | small,
      1,
    )
    for told, (changes, rates) in RATES.items()
    for name in told.split()[:1]
    for rate in (rates[:1] if quick else rates)
    if not quick or told in QUICK
  ]
  return cases_lib.framed(listed, quick)
