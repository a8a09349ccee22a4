"""The largest error of a form of the recurrence, against float64.

Outputs, final state and all gradients, with one decay a key row and one a
head, reads before and after the update; what errors are relative to stands in
rnn_jax.selfcheck.
"""

from rnn_jax import selfcheck


def largest(repeats, impl, L, inputs):
  """{'errors': the largest by kind of gate} at that length and input dtype."""
  del repeats
  found = dict.fromkeys(selfcheck.GATES, 0.0)
  for decay in ('key', 'head'):
    drawn = selfcheck.draw(L, decay, inputs)
    for read in ('after', 'before'):
      errors = selfcheck.errors(*drawn, impl=impl, read=read).values()
      by_row = [max(row) for row in zip(*errors, strict=True)]
      for row, error in enumerate(by_row):
        gate = list(selfcheck.GATES)[row // len(selfcheck.STARTS)]
        found[gate] = max(found[gate], float(error))
  return {'errors': found}


def within_bounds(repeats, impl=''):
  """Checks as launch.selfcheck does, and names what is beyond its bound.

  Raises:
    RuntimeError: something is.
  """
  del repeats
  results = [
    selfcheck.check(case)
    for case in selfcheck.cases()
    if impl in ('', case.impl)
  ]
  wrong = [result for result in results if not result.passed]
  if wrong:
    raise RuntimeError(f'{len(wrong)} of {len(results)} wrong: {wrong[0]}')
  worst = max(result.error / result.bound for result in results)
  return {'checks': len(results), 'worst_share_of_bound': float(worst)}
