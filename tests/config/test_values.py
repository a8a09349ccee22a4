"""Raw values as dataclasses, and differences of configs."""

import dataclasses
import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values
from tests.config import test_config


@dataclasses.dataclass(frozen=True)
class Inner:
  rate: float = 0.5
  pair: tuple[int, int] = (1, 2)


@dataclasses.dataclass(frozen=True)
class Outer:
  steps: int = 3
  every: int | str = 'auto'
  names: tuple[str, ...] = ()
  inner: Inner = dataclasses.field(default_factory=Inner)


def test_raw_values_become_what_the_types_say():
  raw = {'every': '12', 'names': ['a', 'b'], 'inner': {'rate': 1}}
  built = values.build(Outer, raw, '')
  assert built == Outer(every=12, names=('a', 'b'), inner=Inner(rate=1.0))
  assert type(built.inner.rate) is float


def test_a_locked_config_gives_back_what_it_was_made_of():
  outer = Outer(every=7, names=('a',))
  raw = values.to_config_dict(outer)
  assert values.build(Outer, raw, '') == outer
  raw.every = 'sqrt'  # either type, as of flags
  assert values.build(Outer, raw, '').every == 'sqrt'
  with pytest.raises(AttributeError):
    raw.step = 3


@pytest.mark.parametrize(
  ('raw', 'message'),
  (
    ({'step': 1}, "unknown config key step: did you mean 'steps'?"),
    ({'inner': {'zzz': 1}}, r"key inner.zzz: keys: \['rate', 'pair'\]"),
    ({'inner': 3}, r"inner=3: give keys: \['rate', 'pair'\]"),
    ({'steps': 1.5}, 'steps=1.5 is of type float: give int'),
    ({'steps': True}, 'steps=True is of type bool: give int'),
    ({'names': 'ab'}, "names='ab' is of type str: give tuple"),
    ({'inner': {'rate': float('nan')}}, 'inner.rate=nan: give a finite'),
    ({'inner': {'pair': (1,)}}, r'inner.pair: \(1,\): give 2 values'),
  ),
)
def test_a_wrong_value_is_refused_by_its_key(raw, message):
  with pytest.raises(errors.InputError, match=message):
    values.build(Outer, raw, '')


def test_differences_name_each_leaf_that_changed():
  old = config_lib.to_dict(config_lib.parse(test_config.changed()))
  new = config_lib.to_dict(
    config_lib.parse(test_config.changed(model__layers=3, cell__heads=2))
  )
  del new['train']['seed']
  new['data']['splits'] = [90, 5, 5]  # as JSON gives tuples back
  assert values.differences(old, new) == [
    'cell.heads: 4 -> 2',
    'model.layers: 2 -> 3',
    "train.seed: 0 -> '(absent)'",
  ]
  assert values.differences(old, old) == []
  pairs = (('embed.*', 1), ('head/.*', 0.5))
  old = config_lib.parse(test_config.changed(optimizer__multipliers=pairs))
  assert old.optimizer.multipliers == (('embed.*', 1.0), ('head/.*', 0.5))
  saved = json.loads(config_lib.to_json(old))
  assert values.differences(saved, config_lib.to_dict(old)) == []
