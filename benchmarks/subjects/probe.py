"""What kind of process a case runs in."""

from benchmarks import rows


def environment(repeats):
  """The device, versions and commit."""
  del repeats
  return {'environment': rows.environment()}
