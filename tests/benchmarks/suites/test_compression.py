"""Ways of compression, and a table that says what they cost."""

import pytest

from benchmarks.suites import compression
from rnn_jax import config as config_lib
from rnn_jax.training import hooks
from tests.benchmarks import made
from tests.support import shared

FAST = {  # compiles in half the time
  'cell.preset': 'simple',
  'cell.heads': 1,
  'model.block': 'plain',
  'model.mlp_width': 0,
  'recurrence.impl': 'native',
  'data.source': 'text',
  'data.split_by': 'position',
  'data.splits': (90, 10, 0),
}


@pytest.fixture(name='job')
def _job(tmp_path, monkeypatch):
  """A small model that nobody has trained yet."""
  monkeypatch.setattr(compression, 'SHARES', (0.5,))
  monkeypatch.setattr(hooks, 'draw_loss', lambda trainer: None)
  text = tmp_path / 'text.txt'
  text.write_text(''.join(f'line {n}, of a few words\n' for n in range(600)))
  raw = compression.raw_config(4, True)
  raw.update_from_flattened_dict(FAST)
  raw.data.path = str(text)
  return compression.Job(tmp_path, raw, more_steps=4, repeats=1, new_tokens=8)


def test_zeros_stay_and_training_takes_no_more_bytes(job):
  with shared.programs():
    trained = compression.train(job.raw, job.teacher, 'best')
    whole = job.measure(trained)
    ways = dict(compression.WAYS['stdlib_bytes, global'](job, trained))
  assert whole['zeros'] < 0.01
  later = ways['50% zeros, global, trained on']
  assert later['zeros'] == pytest.approx(0.5, abs=0.02)
  # AdamW's two moments would be twice the parameters besides.
  assert later['bytes'] < 1.2 * whole['bytes']
  assert later['held_bytes'] == whole['held_bytes']


def test_a_student_has_half_the_width_without_and_with_its_teacher(
  job, monkeypatch
):
  monkeypatch.setattr(
    compression, 'train', lambda raw, folder, which: config_lib.parse(raw)
  )
  monkeypatch.setattr(compression.Job, 'measure', lambda self, config: config)
  way = compression.WAYS['stdlib_bytes, distilled']
  untaught, taught = dict(way(job, None)).values()
  assert untaught.model == taught.model
  assert taught.model.width == job.raw.model.width // 2
  assert untaught.distillation.teacher == ''
  assert taught.distillation.teacher == str(job.teacher)


def variant(bytes_, rate):
  return {
    'zeros': 0.5,
    'perplexity': 2.0,
    'bytes': bytes_,
    'held_bytes': 400,
    'tokens_per_second': rate,
  }


def test_bytes_with_an_optimizer_are_left_out_and_slow_rows_marked(tmp_path):
  variants = {
    'float32': variant(400, 5000.0),
    '50% zeros, at once': variant(200, 1300.0),
    '50% zeros, trained on': variant(900, 4800.0),
  }
  row = made.row('stdlib_bytes', variants=variants)
  text = made.section(tmp_path, 'compression', [row])
  assert '| 200 bytes | 2.00 | 400 bytes | 1,300 (disturbed) |' in text
  assert '| - | - | 400 bytes | 4,800 |' in text
  assert '`stdlib_bytes, global`; `stdlib_bytes, gradual`' in text
  row['bytes_of'] = 'parameters'
  text = made.section(tmp_path, 'compression', [row])
  assert '| 900 bytes | 0.44 | 400 bytes | 4,800 |' in text
