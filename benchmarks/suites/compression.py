"""Compressed models: perplexity, bytes on the disk, tokens a second."""

from benchmarks import cases as cases_lib


def cases(quick):
  """One case: a model is trained, then compressed in each way."""
  parameters = {}
  if quick:
    parameters = {
      'steps': 4,
      'more_steps': 4,
      'new_tokens': 8,
      'small': True,
    }
  listed = [
    cases_lib.Case(
      'stdlib_bytes', 'compression.variants', parameters, timeout=7200.0
    )
  ]
  return cases_lib.framed(listed, quick)
