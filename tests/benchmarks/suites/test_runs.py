"""Training runs: every row is shown, with its device."""

from tests.benchmarks import made


def test_every_run_is_shown_with_its_device(tmp_path):
  def measured(name, device, layout='stream'):
    return made.WHERE | dict(
      name=name,
      device=device,
      config={'data': {'layout': layout}},
      held_out={
        **dict.fromkeys(('loss', 'bits_per_byte', 'gzip', 'xz'), 1.5),
        'split': 'test',
        'accuracy': 0.75,
      },
      **dict.fromkeys(('parameters', 'steps', 'tokens', 'seconds'), 60),
      tokens_per_second_median=2.0,
      peak_memory_bytes=2**20,
    )

  rows = [
    measured('a', 'an old processor'),
    measured('a', 'an old processor'),
    measured('a', 'a processor'),
    measured('b', 'an old processor', 'images'),
  ]
  text = made.section(tmp_path, 'runs', rows)
  lines = [line.split(' | ') for line in text.splitlines()]
  assert [(x[0], x[-2]) for x in lines if x[0] in ('| a', '| b')] == [
    ('| a', 'an old processor'),
    ('| a', 'an old processor'),
    ('| a', 'a processor'),
    ('| b', 'an old processor'),
  ]
  assert '1.5000 | 1.5000 | 1.500, 1.500 | 1 MiB' in text
  assert '60 | 1.0 min | 2 | test | 0.7500 | 1.5000 | 1 MiB' in text
