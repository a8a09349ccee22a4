"""Gradients reach as far as the model, and are compared by octaves."""

import jax
import numpy as np

from benchmarks.suites import gradient_flow
from benchmarks.workloads import training
from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.inspection import curves
from rnn_jax.inspection import flow
from rnn_jax.tasks import language_modeling
from tests.benchmarks import made


def test_the_gradient_of_the_last_loss_reaches_as_far_as_the_model():
  raw = training.raw_config('attention, window 32')
  raw.model.width = 8
  raw.cell.update(heads=1, head_width=4, window=2)
  task = language_modeling.make(config_lib.parse(raw), tokenizer.Bytes())
  tokens = np.random.default_rng(0).integers(0, 11, (3, 13))
  params = jax.jit(task.init_parameters)(jax.random.key(0))
  batch = gradient_flow.batch_of(tokens)
  norms = curves.norms([flow.sums(task, params, batch)])
  assert norms.shape == (12,)
  # Two layers that each see two steps back reach four.
  assert np.all(norms[:5] > 1e-4) and not norms[5:].any()


def test_the_report_compares_octaves_of_the_delay(tmp_path):
  slow = [9.0, 1.0, *[0.5] * 2, *[0.25] * 4]
  fast = [9.0, 1.0, *[1e-2] * 2, *[1e-4] * 4]
  gone = [9.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
  rows = [
    made.row(name, norms=norms, **others)
    for name, norms, others in (
      ('SimpleRNN, initial', slow, {}),
      ('SimpleRNN, simple, initial', fast, {}),
      ('SimpleRNN, trained', slow, {'held_out': {'loss': 1.5}}),
      ('SimpleRNN, simple, trained', gone, {'held_out': {'loss': 1.75}}),
    )
  ]
  text = made.section(tmp_path, 'gradient_flow', rows)
  assert '| SimpleRNN, initial | - | 1.0e+00 | 5.0e-01 | 2.5e-01 |' in text
  assert '| SimpleRNN, trained | 1.500 |' in text
  assert 'over delays of 4 and more the gradient is 1/4 of that' in text
  assert "initial: over delays of 4 and more the improved preset's" in text
  assert 'is 2.5e+03 times' in text and "of the simple preset's there" in text
