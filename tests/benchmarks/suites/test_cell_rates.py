"""The page on rates and seeds: means at the best rate, which rows choose."""

from benchmarks.suites import cell_rates
from tests.benchmarks import made


def trained(name, rate, seed, loss):
  return made.row(
    f'{name}: {rate:g}, seed {seed}', weights=1234, held_out={'loss': loss}
  )


def test_cells_are_shown_at_their_best_rate_the_lowest_loss_first(tmp_path):
  worse = [trained(name, 1e-3, 0, 3.0) for name in cell_rates.BEST]
  best = [
    trained(name, rate, seed, place + 0.25 * seed)
    for place, (name, rate) in enumerate(cell_rates.BEST.items())
    for seed in (0, 1)
  ]
  label = f'{next(iter(cell_rates.BEST))}: 0.012, seed 0'
  failed = made.failed(label, 'killed by it')
  text = made.section(tmp_path, 'cell_rates', [failed, *worse, *best])
  lines = [line for line in text.splitlines() if '1,234' in line]
  assert [line.split(' | ')[0][2:] for line in lines] == [*cell_rates.BEST]
  assert ' | 3.000 | ' in lines[0] and '0.125 ± 0.177 | 2 |' in lines[0]
  assert 'Not measured yet: ' in text and f'{label}: killed by it' in text
