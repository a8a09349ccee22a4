"""What suites conclude from rows: verdicts, savings, fits, what is better."""

import pytest

from benchmarks.suites import published
from benchmarks.suites import remat
from benchmarks.suites import scaling
from benchmarks.suites import vision
from tests.benchmarks import made

INDEXED = 'forward: PyTorch, indexed, '


def row(seconds, bytes_):
  return {'median': seconds, 'temp_bytes': bytes_}


# Against 100 bytes and 1 s, with a noise floor of a tenth.
@pytest.mark.parametrize(
  ('bytes_', 'seconds', 'good'),
  (
    (98, 1.12, False),
    (96, 0.95, False),
    (96, 0.90, True),
    (95, 1.50, True),
    (101, 0.80, True),
  ),
)
def test_a_schedule_is_better_by_more_than_noise(bytes_, seconds, good):
  rows = {'uniform, sqrt': row(1.0, 100), 'binomial': row(seconds, bytes_)}
  text = remat.verdict('binomial', rows, 0.1)
  assert text.startswith(f'{bytes_ / 100:.2f} x memory, {seconds:.2f} x time')
  assert text.endswith(': not better than uniform, sqrt') == (not good)
  assert remat.verdict('uniform, sqrt', rows, 0.1) == '-'


def test_a_schedule_that_beats_one_uniform_names_another_it_does_not():
  rows = {
    'uniform, every 8': row(1.0, 60),
    'uniform, sqrt': row(1.0, 100),
    'logarithmic': row(1.0, 80),
  }
  text = remat.verdict('logarithmic', rows, 0.0)
  assert text.endswith(': not better than uniform, every 8')


def test_claims_are_confirmed_or_corrected_by_what_was_measured():
  rows = [
    made.row(f'{INDEXED}separate, batch 1', 0.7, sequences=1),
    made.row(f'{INDEXED}separate, batch 32', 3.2, sequences=32),
    made.row(f'{INDEXED}fused, batch 32', 6.4, sequences=32),
    made.row('generation: PyTorch, indexed, rerun', 1.0),
  ]
  batches, fused, checkpointed, stepwise, *_ = published.claims(
    {row['case']: row for row in rows}
  )
  assert batches.endswith('7.21 times as fast: **confirmed**, 7 times here.')
  assert fused.endswith('1.02 times as fast: **corrected**, 0.5 times here.')
  assert checkpointed.endswith('1.14 times as fast: not measured here.')
  assert stepwise.endswith('a full re-run: not measured here.')


def test_a_speed_up_is_that_of_the_rounds(tmp_path):
  def against(case, ratio, **values):
    ends = dict.fromkeys(('ratio', 'ratio_low', 'ratio_high'), ratio)
    given = {'base': vision.FIRST, 'rounds': 3, **ends, **values}
    return made.row(case, 20.0, **given)

  rows = [
    made.row(vision.FIRST, 20.0, pictures_per_second=12.8),
    # Its time by itself would say 1; the rounds say 1.25.
    against(vision.LARGER, 0.8),
    against(vision.OPTIMIZED, 1.0),
    against('PyTorch, fused AdamW', 1 / 1.1, floor=0.2),
    against('PyTorch, angles kept', 1.0),
  ]
  text = made.section(tmp_path, 'vision', rows)
  assert '2 x 128 for 64, 1.3 times as fast: **confirmed**, 1.25' in text
  assert (
    'All but fused attention, 2.5 times as fast: **corrected**, none' in text
  )
  assert 'Fused AdamW, 1.1 times as fast: 1.1 times here, too noisy' in text
  assert '1.1 times as fast: **corrected**, none here (1.00 to 1.00' in text
  assert 'Fused attention, 2.5 times as fast: not measured here.' in text


def test_without_rounds_two_deviations_are_the_interval():
  times = {
    vision.FIRST: (1.0, 0.03),
    vision.LARGER: (0.8, 0.01),
    'PyTorch, fused AdamW': (0.95, 0.02),
  }
  rows = {
    name: made.row(name, median, deviation=deviation)
    for name, (median, deviation) in times.items()
  }
  _, found = vision.result_tables(rows)
  assert '2 x 128 for 64, 1.3 times as fast: **confirmed**, 1.25' in found
  assert 'Fused AdamW, 1.1 times as fast: **corrected**, none' in found
  assert '(0.98 to 1.13 times)' in found


@pytest.mark.parametrize(
  ('combined', 'verdict'),
  ((250, '**confirmed**, 75.0% here'), (10, '**corrected**, 99.0% here')),
)
def test_a_saving_is_a_share_of_the_plain_step(tmp_path, combined, verdict):
  keys = 'optimizer', 'argument', 'temp', 'total'
  sizes = {
    'plain, whole': 1000,
    '8-bit, checkpoints, whole': combined,
    'plain': 900,
    '8-bit': 890,
    'checkpoints': 300,
    '8-bit, checkpoints': 200,
  }
  rows = [
    made.row(f'gpt2: {name}', **{f'{key}_bytes': n * 2**20 for key in keys})
    for name, n in sizes.items()
  ]
  text = made.section(tmp_path, 'memory', rows)
  assert f'save 78.1 % of the gpt2 size: {verdict}' in text
  assert 'One at a time, 8-bit: 11.0%, checkpoints: 70.0%.' in text


def test_exponents_growth_and_crossings(tmp_path):
  rows = [
    made.row(f'length {n}: {name}', seconds, temp_bytes=bytes_)
    for n in (1024, 8192, 65536)
    for name, seconds, bytes_ in (
      ('ours', n / 1e5, n),
      ('attention, full', n**2 / 1e9, n**2),
    )
  ]
  text = made.section(tmp_path, 'scaling', rows)
  assert '| ours | 1.00 | 1.00 |' in text
  assert '| attention, full | 2.00 | 2.00 |' in text
  assert 'the time of ours grows 8 times, the length 8 times.' in text
  assert 'Ours is faster than attention, full from 65,536 tokens on.' in text
  assert text.count('**confirmed**') == 4
  assert scaling.exponent([(1, 1.0)]) is None
