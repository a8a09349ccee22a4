"""The quasi-recurrent network: how it runs, and what it refuses."""

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells import qrnn
from tests.cells import equations
from tests.support import draws
from tests.support import loops

D = equations.D


def traced(length=12, **plan):
  cell = qrnn.Cell(qrnn.Config(), D, base.Plan(**plan))
  x, state = draws.normal(2, length, D), cell.init_state(2)
  variables = draws.parameters(cell.init, state, x)
  return jax.make_jaxpr(cell.apply)(variables, state, x)


@pytest.mark.parametrize(
  ('plan', 'turns'),
  (
    ({'impl': 'chunked', 'chunk_length': 4}, [4, 3]),
    ({'impl': 'associative'}, []),
    ({'impl': 'scan'}, [12]),
    ({'impl': 'associative', 'remat_every': 3}, [4]),
  ),
)
def test_the_plan_s_implementation_is_the_one_that_runs(plan, turns):
  assert loops.lengths(traced(**plan).jaxpr) == turns


def test_incompatible_options_are_refused():
  raw = config_lib.default('qrnn')
  raw.mesh.sequence, raw.remat.every = 2, 16
  raw.data.layout = 'stream'
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(raw)
  assert str(caught.value) == (
    "remat.every=16: with mesh.sequence=2 model.cell='qrnn' stores all states: "
    'give 0'
  )
  raw = config_lib.default('qrnn')
  raw.model.update(block='plain', embedding_width=32)
  with pytest.raises(errors.InputError, match='embedding_width=32'):
    config_lib.parse(raw)
