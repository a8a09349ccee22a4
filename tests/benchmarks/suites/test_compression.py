"""Ways of compression, and a table that says what they cost."""

import itertools

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
  return compression.Job(tmp_path, raw, more_steps=4)


def test_zeros_stay_and_training_takes_no_more_bytes(job):
  trained = made.bundle(config_lib.parse(job.raw))
  names = compression.WHOLE, '50% zeros, trained on'
  with shared.programs():
    ways = {compression.WHOLE: compression.Made(job.write(trained))}
    # Of each matrix; of all would train once more.
    ways.update(itertools.islice(compression.pruned_at_once(job, trained), 2))
    found = {name: compression.scores(ways[name].folder) for name in names}
    rates, noise = compression.write_in_turns(
      {name: ways[name] for name in names}, rounds=2, new_tokens=8
    )
  later = names[1]
  whole = found[compression.WHOLE]
  assert whole['zeros'] < 0.01
  assert found[later]['zeros'] == pytest.approx(0.5, abs=0.02)
  # AdamW's two moments would be twice the parameters besides.
  assert found[later]['bytes'] < 1.2 * whole['bytes']
  held = {name: row['held_bytes'] for name, row in rates.items()}
  assert held[later] == held[compression.WHOLE]
  assert rates[compression.WHOLE]['ratio'] == 1 and noise > 0


def test_a_student_has_half_the_width_without_and_with_its_teacher(
  job, monkeypatch
):
  monkeypatch.setattr(
    compression, 'train', lambda raw, folder, which: config_lib.parse(raw)
  )
  monkeypatch.setattr(compression.Job, 'write', lambda self, config: config)
  students = dict(compression.distilled(job, None))
  untaught, taught = (one.folder for one in students.values())
  assert untaught.model == taught.model
  assert taught.model.width == job.raw.model.width // 2
  assert untaught.distillation.teacher == ''
  assert taught.distillation.teacher == str(job.teacher)
