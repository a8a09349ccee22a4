"""The largest error of each form of the recurrence; no seconds."""

from benchmarks import cases as cases_lib

LENGTHS = {'step': 1, 'scan': 130, 'associative': 130, 'chunked': 130}


def cases(quick):
  """Each implementation with float32 and bfloat16 inputs."""
  return [
    cases_lib.Case(
      f'{impl}, {inputs}',
      'accuracy.largest',
      {
        'impl': impl,
        'L': min(length, 5) if quick else length,
        'inputs': inputs,
      },
      1,
    )
    for impl, length in LENGTHS.items()
    for inputs in ('float32', 'bfloat16')
  ]
