"""Contradictions are refused before any work; the message names both keys."""

import re

import pytest

from tests.config import test_config

CHANGES = (
  (
    {'optimizer__name': 'adam'},
    r"optimizer.name='adam': choose one of \['adabelief', .*'shampoo'\]",
  ),
  (
    {'schedule__name': 'wsd'},
    r"schedule.name='wsd': choose one of \['constant', .*'stable_decay'\]",
  ),
  (
    {'optimizer__name': 'schedule_free'},
    "schedule.name='cosine': optimizer.name='schedule_free' averages",
  ),
  (
    {
      'optimizer__name': 'schedule_free',
      'schedule__name': 'constant',
      'optimizer__b1': 0.0,
    },
    "optimizer.b1=0.0: optimizer.name='schedule_free' takes",
  ),
  (
    {'optimizer__name': 'lion', 'optimizer__moments': 'int8'},
    "optimizer.moments='int8': optimizer.name='lion' has no such key",
  ),
  (
    {'optimizer__name': 'shampoo', 'optimizer__eps': 0.0},
    'optimizer.eps=0.0: give a number above 0 as float32',
  ),
  (
    {'optimizer__name': 'shampoo', 'mesh__tensor': 2},
    "mesh.tensor=2: optimizer.name='shampoo' needs whole matrices",
  ),
  (
    {'optimizer__name': 'kfac', 'mesh__fsdp': 2},
    "mesh.fsdp=2: optimizer.name='kfac' needs whole matrices",
  ),
  (
    {'optimizer__name': 'kfac', 'mesh__rules': ('D=fsdp+data',)},
    r"mesh.rules=\('D=fsdp\+data',\): optimizer.name='kfac' has factors",
  ),
  (
    {'optimizer__damping': 0.1},
    "optimizer.damping=0.1: optimizer.name='adamw' has no such key",
  ),
  (
    {'optimizer__nesterov': True},
    "optimizer.nesterov=True: optimizer.name='adamw' has no such key",
  ),
  (
    {'optimizer__trust': 0.1},
    "optimizer.trust=0.1: optimizer.name='adamw' has no such key",
  ),
  (
    {'schedule__cycle_steps': 10},
    "schedule.cycle_steps=10: schedule.name='cosine' has no such key",
  ),
  (
    {'schedule__name': 'cyclical', 'schedule__warmup_steps': 100},
    "schedule.warmup_steps=100: schedule.name='cyclical' already rises",
  ),
  (
    {'schedule__name': 'cosine_restarts', 'schedule__cycle_steps': 1},
    'schedule.cycle_steps=1: each step would be a restart',
  ),
  (
    {
      'schedule__name': 'one_cycle',
      'schedule__warmup_steps': 0,
      'schedule__cycle_steps': 1001,
    },
    'schedule.cycle_steps=1001: give at most train.steps=1000',
  ),
  (
    {
      'schedule__name': 'cyclical',
      'schedule__warmup_steps': 0,
      'schedule__cycle_steps': 1,
    },
    'schedule.cycle_steps=1: give 2 or more',
  ),
  (
    {
      'schedule__name': 'cyclical',
      'schedule__warmup_steps': 0,
      'schedule__low_learning_rate': 1e-2,
    },
    'schedule.low_learning_rate=0.01: .* optimizer.learning_rate=0.001',
  ),
  (
    {
      'schedule__name': 'cyclical',
      'schedule__warmup_steps': 0,
      'schedule__low_learning_rate': 0.0,
    },
    "schedule.low_learning_rate=0.0: schedule.name='cyclical' starts",
  ),
  (
    {
      'schedule__name': 'one_cycle',
      'schedule__warmup_steps': 0,
      'schedule__low_learning_rate': 1e-5,
    },
    'schedule.final_learning_rate=0.0001: .* schedule.low_learning_rate=1e-05',
  ),
  (
    {'schedule__name': 'stable_decay', 'schedule__decay_steps': 901},
    'schedule.decay_steps=901: .* schedule.warmup_steps = 900',
  ),
  (
    {'schedule__name': 'linear', 'schedule__final_learning_rate': 0.01},
    'schedule.final_learning_rate=0.01: .* optimizer.learning_rate=0.001',
  ),
  (
    {'optimizer__multipliers': (('embed.*', 0.0),)},
    r"optimizer.multipliers=\('embed.\*', 0.0\): give a number above 0",
  ),
  (
    {'optimizer__weight_decays': (('embed.*', -1.0),)},
    r"optimizer.weight_decays=\('embed.\*', -1.0\): give 0 or more",
  ),
  (
    {'optimizer__frozen': ('embed(',)},
    r"optimizer.frozen='embed\(': not a regular expression",
  ),
  (
    {'optimizer__multipliers': (('embed', 0.5, 1.0),)},
    r"optimizer.multipliers: \('embed', 0.5, 1.0\): give 2 values",
  ),
  (
    {'optimizer__multipliers': (('embed', 'half'),)},
    "optimizer.multipliers='half' is of type str: give float",
  ),
)


@pytest.mark.parametrize(('change', 'message'), CHANGES)
def test_a_contradiction_names_the_keys_and_a_remedy(change, message):
  found = test_config.refusal(test_config.changed(**change))
  assert re.search(message, found), found
