"""Compressed models: perplexity, bytes on the disk, tokens a second."""

from benchmarks import cases as cases_lib

WAYS = {  # the case's name, and which of compression.WAYS it measures
  'stdlib_bytes': '',
  'stdlib_bytes, global': 'global',
  'stdlib_bytes, gradual': 'gradual',
  'stdlib_bytes, distilled': 'distilled',
}
QUICK = {'steps': 4, 'more_steps': 4, 'new_tokens': 8, 'small': True}


def cases(quick):
  """For each way a model is trained, the same one, then compressed."""
  small = QUICK if quick else {}
  listed = [
    cases_lib.Case(
      name,
      'compression.variants',
      ({'ways': ways} if ways else {}) | small,
      timeout=7200.0,
    )
    for name, ways in WAYS.items()
  ]
  return cases_lib.framed(listed, quick)
