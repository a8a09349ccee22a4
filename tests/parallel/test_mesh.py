"""The mesh, and arrays on it."""

import dataclasses

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import rules

DEFAULT = config_lib.Mesh()


def test_all_devices_are_copies_by_default():
  mesh = mesh_lib.make(DEFAULT)
  assert mesh.shape['data'] == mesh.size == jax.device_count()
  assert mesh_lib.make().shape == mesh.shape


@pytest.mark.parametrize(
  ('options', 'count', 'expected'),
  (
    ({}, 8, (8, 1, 1, 1, 1, 1)),
    ({'fsdp': 4}, 8, (2, 4, 1, 1, 1, 1)),
    ({'data': 2, 'fsdp': -1, 'tensor': 2}, 8, (2, 2, 1, 1, 1, 2)),
    ({'data': 1, 'pipe': 2, 'sequence': 3}, 6, (1, 1, 1, 2, 3, 1)),
  ),
)
def test_minus_one_is_what_the_others_leave(options, count, expected):
  given = dataclasses.replace(DEFAULT, **options)
  assert mesh_lib.sizes(given, count) == expected


@pytest.mark.parametrize('options', ({'fsdp': 3}, {'data': 2, 'fsdp': 2}))
def test_sizes_that_do_not_make_up_the_devices_are_refused(options):
  given = dataclasses.replace(DEFAULT, **options)
  message = r'mesh.data=.*: the job has 8 device\(s\), and these sizes make up'
  with pytest.raises(errors.InputError, match=message):
    mesh_lib.sizes(given, 8)


def test_a_prefix_of_shardings_places_a_tree():
  mesh = mesh_lib.make()
  rows = rules.sharding(mesh, rules.batch_spec('BxL'))
  whole = rules.sharding(mesh)
  tree = {'batch': (np.ones((8, 3)), None), 'scalar': np.float32(2)}
  placed = mesh_lib.put(tree, {'batch': rows, 'scalar': whole})
  assert placed['batch'][0].sharding == rows
  assert placed['batch'][1] is None
  assert placed['scalar'].sharding == whole
  np.testing.assert_array_equal(placed['batch'][0], np.ones((8, 3)))


def test_it_works_where_implicit_transfers_are_forbidden():
  mesh = mesh_lib.make()
  with jax.transfer_guard('disallow'):
    mesh_lib.put(np.ones((8, 3)), rules.sharding(mesh, rules.batch_spec('B')))
