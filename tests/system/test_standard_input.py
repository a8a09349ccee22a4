"""A dash in place of a file's path."""

import io
import os
import sys

from rnn_jax.system import standard_input


def test_a_dash_is_a_file_with_the_input_s_bytes(monkeypatch):
  content = b'a\r\n\xff' * 50_000
  reader = io.TextIOWrapper(io.BytesIO(content))
  monkeypatch.setattr(sys, 'stdin', reader)
  with standard_input.as_file('-', '.py') as path:
    for _ in range(2):
      with open(path, 'rb') as file:
        assert file.read() == content
    assert path.endswith('.py')
  assert not os.path.exists(path)


def test_a_path_stays_as_it_is():
  with standard_input.as_file('./-') as path:
    assert path == './-'
