"""The coordinator's port."""

import socket

import pytest

from rnn_jax import errors
from rnn_jax.parallel import clusters
from rnn_jax.parallel import hosts


def test_a_taken_port_is_refused_before_jax_uses_it():
  with socket.socket() as taken:
    taken.bind(('127.0.0.1', 0))
    taken.listen()
    label = f'127.0.0.1:{taken.getsockname()[1]}'
    address = clusters.Address(label, 2, 0, None, (), label)
    with pytest.raises(errors.InputError, match='give a free port'):
      hosts._check_port(address)
