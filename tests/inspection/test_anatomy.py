"""The parts of models by name, their layers in order."""

import numpy as np

from rnn_jax.inspection import anatomy


def tree(layers):
  kernel = np.arange(layers * 6.0).reshape(layers, 2, 3)
  return {
    'embedding': {'embedding': np.ones((5, 2))},
    'head': {'kernel': np.ones((2, 5))},
    'stack': {
      'blocks': {'cell': {'kernel': kernel}},
      'first': {'cell': {'kernel': np.ones((4, 3))}},
    },
  }


def test_layers_come_one_by_one_and_in_their_order():
  parts = anatomy.parts(tree(11))
  layers = [f'layer {n}' for n in range(12)]
  assert sorted(parts, key=anatomy.place) == ['embedding', *layers, 'head']
  assert parts['layer 0']['cell/kernel'].shape == (
    4,
    3,
  )  # that of another width
  np.testing.assert_array_equal(
    parts['layer 3']['cell/kernel'], np.arange(12.0, 18).reshape(2, 3)
  )


def test_layers_that_share_their_parameters_are_one_part():
  params = {
    'patches': {'kernel': np.ones((4, 2)), 'bias': np.zeros(2)},
    'token': np.ones(2),
    'positions': {'table': {'embedding': np.ones((5, 2))}},
    'stack': {'shared': {'cell': {'kernel': np.ones((2, 2))}}},
    'head': {'bias': np.zeros(3)},
  }
  parts = anatomy.parts(params)
  first = 'patches', 'token', 'positions'
  assert sorted(parts, key=anatomy.place) == [*first, 'layer 0', 'head']
  assert [*parts['token']] == ['token']


def test_a_classifier_s_own_head_is_not_its_language_model_s():
  params = {'body': tree(1), 'head': {'bias': np.zeros(2)}}
  parts = anatomy.parts(params)
  assert sorted(parts, key=anatomy.place) == [
    'body/embedding',
    'body/layer 0',
    'body/layer 1',
    'body/head',
    'head',
  ]
  assert [*parts['head']] == ['bias']
