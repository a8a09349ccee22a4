"""The rules of the config's section `model.experts`."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors

EXPERTS = {'model.experts.count': 4, 'model.mlp_width': 8}
GROUPS = {'model.experts.groups': 2, 'model.experts.groups_per_token': 2}
DENSE = {'model.experts.dense_layers': 1, 'model.experts.dense_width': 5}

PATTERN = {'model.cells': ('gru', 'lstm'), 'model.mlps': ('mlp', 'experts')}


def parsed(changes):
  raw = config_lib.default()
  config_lib.override(raw, changes)
  return config_lib.parse(raw)


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    (
      EXPERTS | {'model.experts.shared_width': 5, 'mesh.tensor': 2},
      'mesh.tensor=2: it must divide model.experts.shared_width=5',
    ),
    (
      {'model.experts.count': 1, 'model.mlp_width': 8},
      'model.experts.count=1: a router needs a choice: give 2 or more, or 0',
    ),
    (
      EXPERTS | {'model.experts.per_token': 5},
      'model.experts.per_token=5: give at most model.experts.count=4',
    ),
    (
      EXPERTS | {'model.mlp': 'channel_mix'},
      "model.mlp='channel_mix': it reads the step before, and tokens choose",
    ),
    (
      EXPERTS | {'remat.layers': 1, 'remat.keep': ('hidden',)},
      "remat.keep=\\('hidden',\\): experts always compute 'hidden' again",
    ),
    (EXPERTS | {'mesh.expert': 3}, 'mesh.expert=3: it must divide model.exp'),
    (EXPERTS | {'mesh.expert': -1, 'mesh.data': 1}, 'mesh.expert=-1: give its'),
    (
      EXPERTS | {'remat.segment': 64},
      'remat.segment=64: model.experts.balance is of whole rows',
    ),
    (
      EXPERTS | GROUPS | {'model.experts.groups': 4},
      'groups=4: it must divide model.experts.count=4 into groups of 2 or more',
    ),
    (
      EXPERTS | GROUPS,
      'groups_per_token=2: give less than model.experts.groups=2',
    ),
    (
      EXPERTS | {'model.experts.groups': 2, 'model.experts.per_token': 3},
      'per_token=3: a token chooses from 2 experts',
    ),
    (
      EXPERTS | {'model.experts.gate_scale': 0.0},
      'gate_scale=0.0: give a number above 0',
    ),
    (
      EXPERTS | {'model.experts.scores': 'relu'},
      "scores='relu': choose one of",
    ),
    (
      EXPERTS | {'model.experts.dense_layers': 1},
      'dense_width=0: model.experts.dense_layers=1: give both, or 0 for both',
    ),
    (
      EXPERTS | DENSE | {'model.experts.dense_layers': 2},
      'dense_layers=2: only a period of model.cells can begin with them: .* 1',
    ),
    (
      EXPERTS | PATTERN,
      r"dense_width=0: model.mlps=\('mlp', 'experts'\): give it for 'mlp'",
    ),
    (
      EXPERTS | PATTERN | DENSE,
      r"dense_layers=1: model.mlps=\('mlp', 'experts'\) says which layers",
    ),
    (
      EXPERTS | DENSE | {'model.layers': 1},
      'dense_layers=1: no layer of model.layers=1 has experts: give less',
    ),
    (
      EXPERTS | DENSE | {'mesh.tensor': 2},
      'mesh.tensor=2: it must divide model.experts.dense_width=5',
    ),
    (
      EXPERTS | DENSE | {'remat.layers': 2},
      'remat.layers=2: it must divide 1 layers',
    ),
    (
      EXPERTS | {'task.name': 'dpo'},
      "model.experts.balance=0.01: task.name='dpo' does not add it",
    ),
  ),
)
def test_what_experts_cannot_do_is_refused(changes, message):
  with pytest.raises(errors.InputError, match=message):
    parsed(changes)


def test_rows_are_read_in_segments_without_a_balance():
  config = parsed(EXPERTS | {'remat.segment': 64, 'model.experts.balance': 0.0})
  assert config.model.experts == config_lib.Experts(4, 2, 0.0)
