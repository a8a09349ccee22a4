"""Scaling to 1,024 devices, predicted: the training step is compiled for each.

Weak: so many rows a device. Strong: so many rows in all. Parameters are cut
over up to 8 devices, the rest are copies. Nothing runs; every row has the
prediction for each device of rnn_jax/planning/devices.py.
"""

from benchmarks import cases as cases_lib

COUNTS = (1, 4, 16, 64, 256, 1024)
CUT = 8  # devices that share one copy of the parameters, at most
MODELS = {  # config, its argument, overrides, rows a device, rows in all
  'gpt2': ('chatgot', 'gpt2', {'train.precision': 'bfloat16'}, 32, 4096),
  'SimpleRNN': (
    'published',
    '',
    {
      'train.precision': 'bfloat16',
      'model.block': 'residual',
      'model.width': 1024,
      'model.layers': 12,
      'model.unroll': 1,
      'cell.heads': 16,
      'cell.key_width': 64,
      'cell.value_width': 64,
    },
    16,
    2048,
  ),
}
QUICK = {'tiny': ('chatgot', 'tiny', {}, 2, 16)}


def cases(quick):
  """Each model at each number of devices, weak and strong."""
  listed = []
  for model, (config, argument, changed, each, whole) in (
    QUICK if quick else MODELS
  ).items():
    for kind in ('weak', 'strong'):
      for count in (1, 4) if quick else COUNTS:
        cut = min(CUT, count)
        parameters = {
          'config': config,
          'argument': argument,
          'overrides': changed,
          'mesh': {'data': count // cut, 'fsdp': cut},
          'rows': each * count if kind == 'weak' else whole,
        }
        name = f'{model}, {kind}: {count}'
        listed.append(cases_lib.Case(name, 'planning.step', parameters, 1))
  return listed
