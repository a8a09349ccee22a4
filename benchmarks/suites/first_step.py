"""From the command to its first training step, with and without kept programs.

The main job, as `make train` runs it.
"""

from benchmarks import cases as cases_lib

TINY = {'model.layers': 1, 'model.width': 16, 'model.mlp_width': 16}


def cases(quick):
  """A cold start and a warm one."""
  starts = [
    cases_lib.Case(
      f'main job: {name}',
      'first_step.started',
      {
        'config': 'stdlib_bytes',
        'overrides': TINY if quick else {},
        'cached': cached,
      },
      repeats=1 if quick else 5,
    )
    for name, cached in (('cold', False), ('warm', True))
  ]
  return cases_lib.framed(starts, quick)
