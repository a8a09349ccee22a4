"""The input pipeline alone, the training step alone, and both together.

On the main job, which streams, and on the same with rows bucketed by length.
"""

from benchmarks import cases as cases_lib

JOBS = {
  'stream': {},
  'buckets': {'data.layout': 'buckets', 'data.carry_state': False},
}
TINY = {
  'model.width': 16,
  'model.mlp_width': 16,
  'cell.heads': 2,
  'cell.value_width': 8,
}


def cases(quick):
  """The three of each job."""
  listed, steps = [], 2 if quick else 20
  for job, overrides in JOBS.items():
    parameters = {
      'config': 'stdlib_bytes',
      'steps': steps,
      'overrides': {**overrides, **(TINY if quick else {})},
    }
    listed += [
      cases_lib.Case(f'{job}: {what}', f'data.{subject}', parameters, 5)
      for what, subject in (
        ('pipeline alone', 'alone'),
        ('step alone', 'step_alone'),
        ('both', 'both'),
      )
    ]
  return cases_lib.framed(listed, quick)
