"""What a plan says of this machine, beside real steps on virtual devices.

The spread of the repeats stands for the noise: each plan measures the machine
anew.
"""

from benchmarks import cases as cases_lib

MESHES = (
  {'data': 1},
  {'data': 4, 'fsdp': 2},
  {'data': 2, 'fsdp': 2, 'tensor': 2},
)
MODELS = {  # config, its argument, what is set besides
  'ChatGoT small': ('chatgot', 'small', {}),
  'SimpleRNN': ('published', '', {'cell.heads': 2}),  # to be cut in two
}
QUICK = {'ChatGoT tiny': ('chatgot', 'tiny', {})}


def cases(quick):
  """Each model on one device and on eight."""
  listed = []
  for model, (config, argument, overrides) in (
    QUICK if quick else MODELS
  ).items():
    for mesh in MESHES[:1] if quick else MESHES:
      parameters = {
        'config': config,
        'argument': argument,
        'overrides': overrides,
        'mesh': mesh,
        'rows': 2 if quick else 32,
      }
      told = ','.join(f'{name}={size}' for name, size in mesh.items())
      listed.append(
        cases_lib.Case(f'{model}: {told}', 'planning.confirmed', parameters, 3)
      )
  return listed
