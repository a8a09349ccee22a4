"""Programs that the engines and generators of a test run share.

An engine compiles its programs by itself; those of one model, for arguments of
the same shapes, are the same ones.
"""

import contextlib
from unittest import mock

import jax

from rnn_jax.inference import decode
from rnn_jax.inference import drafts
from rnn_jax.serving import reading
from rnn_jax.serving import widths

SHARED = (
  (decode, ('decode', 'empty', 'fresh', 'prefill', 'read')),
  (drafts, ('decode',)),
  (reading, ('_read',)),
  (widths, ('_place', '_move', '_resize')),
)


class _Shared:
  """A jitted function that compiles a program once."""

  def __init__(self, function):
    self._function = function
    self._programs = {}

  def __call__(self, *arguments):
    return self._function(*arguments)

  def __getattr__(self, name):
    return getattr(self._function, name)

  def lower(self, *arguments):
    leaves, tree = jax.tree.flatten(arguments)
    key = tree, *map(_kind, leaves)
    if key not in self._programs:
      self._programs[key] = self._function.lower(*arguments).compile()
    return mock.Mock(compile=lambda: self._programs[key])


def _kind(leaf):
  """What of an argument a program depends on."""
  if not hasattr(leaf, 'dtype'):
    return leaf
  return leaf.shape, leaf.dtype, str(getattr(leaf, 'sharding', None))


@contextlib.contextmanager
def shared():
  """Inside it no program is compiled twice."""
  with contextlib.ExitStack() as stack:
    for module, names in SHARED:
      for name in names:
        function = _Shared(getattr(module, name))
        stack.enter_context(mock.patch.object(module, name, function))
    yield
