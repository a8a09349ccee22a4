"""The lines of a grid on the terminal, and its table."""

from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import terminal
from rnn_jax.system import activity
from tests.experiments import made

LOSS = grid_lib.Metric('loss', 'lower', 'loss')


def test_a_line_when_a_run_starts_and_ends(capsys):
  progress = terminal.Progress(3, LOSS)
  progress.start('a', 'w/a/run.log')
  progress.end('a', made.row('a', 0, {'loss': 2.5}, wall_seconds=90.0))
  progress.start('b', 'w/b/run.log')
  progress.end('b', made.row('b', 0, wall_seconds=30.0))
  progress.end('c', made.row('c', 0, {'loss': 1.0}, wall_seconds=9000.0))
  assert capsys.readouterr().out.splitlines() == [
    '[1/3] a: its output is in w/a/run.log',
    '[1/3] a: loss 2.500, 90 s; about 3 min left',
    '[2/3] b: its output is in w/b/run.log',
    '[2/3] b: failed: train: it broke, 30 s; about 60 s left',
    '[3/3] c: loss 1.000, 2.5 h',
  ]


def test_the_steps_of_a_run_are_seen_in_its_output():
  with terminal.watching('a, train', 20) as see:
    for line in ('parameters:', 'step 5/20  loss 3', 'step 15/20  loss 2'):
      see(line)
    assert 'a, train: 15 of 20 steps' in activity._current[-1].line()
  with terminal.watching('a, evaluate') as see:
    see('a line')
    assert (
      activity._current[-1].line().startswith('a, evaluate: started 0 s ago')
    )


def test_the_table_marks_the_best_and_their_equals():
  grid = made.grid(
    variants={name: {} for name in ('bad', 'good', 'equal', 'none')},
    baseline='',
    metrics=(LOSS,),
  )
  rows = made.rows(
    *(
      made.row(name, seed, {'loss': loss})
      for name, losses in (
        ('bad', (3.0, 3.1)),
        ('good', (2.0, 2.1)),
        ('equal', (2.02, 2.1)),
      )
      for seed, loss in enumerate(losses)
    )
  )
  text = terminal.table(summary_lib.summarize(grid, rows))
  lines = [
    [x.strip() for x in line.split('|')[1:-1]] for line in text.split('\n')
  ]
  heads = 'variant', 'runs', 'loss', 'tokens/s', 'process peak MiB'
  assert lines[0] == [*heads]
  assert lines[2] == ['bad', '2', '3.050 ± 0.071', '2,000 ± 0', '3.000 ± 0.000']
  assert lines[3][2] == '2.050 ± 0.071 *' and lines[4][2] == '2.060 ± 0.057 *'
  assert text.endswith('\n* the best, or no difference seen from it')
  assert 'none' not in text
