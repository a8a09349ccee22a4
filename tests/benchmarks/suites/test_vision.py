"""Speed-ups of Vision-BDH's training are judged by their rows."""

from benchmarks.suites import vision
from tests.benchmarks import made


def against(base, case, seconds, ratio, **values):
  ends = {'ratio': ratio, 'ratio_low': ratio, 'ratio_high': ratio}
  return made.row(case, seconds, base=base, rounds=3, **ends, **values)


def test_speed_ups_are_those_of_the_rounds(tmp_path):
  rows = [
    made.row(vision.FIRST, 20.0, pictures_per_second=12.8),
    # Its time alone would say 1; the rounds say 1.25.
    against(vision.FIRST, vision.LARGER, 20.0, 0.8),
    against(vision.FIRST, vision.OPTIMIZED, 20.0, 1.0),
    against(vision.FIRST, 'PyTorch, fused AdamW', 20.0, 1 / 1.1, floor=0.2),
    against(vision.FIRST, 'PyTorch, angles kept', 20.0, 1.0),
    against(vision.FIRST, 'ours', 5.0, 0.25, pictures_per_second=51.2),
    made.failed('PyTorch, compiled', 'no compiler'),
  ]
  text = made.section(tmp_path, 'vision', rows)
  assert '| ours | 5.00 s ± 0.00 µs | 51.2 | 4.00 x (4.00 to 4.00) |' in text
  assert '2 x 128 for 64, 1.3 times as fast: **confirmed**, 1.25' in text
  assert (
    'All but fused attention, 2.5 times as fast: **corrected**, none' in text
  )
  assert 'Fused AdamW, 1.1 times as fast: 1.1 times here, too noisy' in text
  assert '1.1 times as fast: **corrected**, none here (1.00 to 1.00' in text
  assert 'Fused attention, 2.5 times as fast: not measured here.' in text
  assert 'no compiler' in text


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


def test_our_steps_take_as_many_pictures_as_theirs():
  listed = {case.name: case for case in vision.cases(quick=True)}
  values = vision.train(2, **listed['ours, small batches'].parameters)
  rate = vision.PICTURES / values['median']
  assert values['pictures_per_second'] == rate and values['repeats'] == 2
