"""Each optimizer is reported by its better rate."""

import re

from tests.benchmarks import made


def test_each_optimizer_is_reported_by_its_better_rate(tmp_path):
  def measured(name, rate, loss, seconds, share):
    return made.row(
      f'{name}, {rate:g}',
      seconds,
      parameters={'changes': {'name': name, 'learning_rate': rate}},
      held_out={'loss': loss},
      losses=[[10, 5.0], [20, loss]],
      steps=20,
      state_bytes=share * 1000,
      parameter_bytes=1000,
    )

  rows = [
    measured('adamw', 1e-3, 2.5, 0.5, 2),
    measured('adamw', 3e-3, 2.25, 0.9, 2),  # not its program's time
    measured('lion', 1e-3, 2.0, 0.4, 1),
    made.failed('muon, 0.01', 'killed by it'),
  ]
  text = made.section(tmp_path, 'optimizers', rows)
  assert ' 20 steps, the best first' in text
  assert 'muon, 0.01: killed by it' in text
  first = '| `lion` | 0.001 | 2.000 | - | 1,000 | 1.00 | 0.80 x |'
  second = '| `adamw` | 0.003 | 2.250 | 0.001: 2.500 | 2,000 | 2.00 | 1.00 x |'
  assert f'{first}\n{second}' in text
  (lacking,) = re.findall('Not measured yet: (.*)', text)
  assert '`shampoo, 0.001`' in lacking and '`lion, 0.0003`' in lacking
  assert '`lion, 0.001`' not in lacking and 'muon, 0.01' not in lacking
  (picture,) = re.findall(r'\((plots/.*?\.png)\)', text)
  assert (tmp_path / picture).exists()
