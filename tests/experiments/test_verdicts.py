"""Which variant is best, and what the comparison may claim."""

from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import verdicts
from tests.experiments import made

MIB = 2**20


def summarize(**figures):
  """A comparison of {variant: (loss, MiB of a step, its seconds)}."""
  grid = made.grid(
    variants={name: {} for name in figures},
    baseline='plain',
    metrics=(('loss', 'lower', 'loss'),),
  )
  rows = [
    made.row(
      name, 0, {'loss': loss}, step_bytes=size * MIB, step_seconds=seconds
    )
    for name, (loss, size, seconds) in figures.items()
  ]
  return summary_lib.summarize(grid, made.rows(*rows))


def test_the_best_of_those_that_keep_the_quality_is_named():
  lines = verdicts.ranking(
    summarize(
      plain=(2.0, 100, 1.0),
      small=(2.01, 40, 1.5),
      tiny=(2.5, 10, 0.5),
      quick=(1.9, 120, 0.8),
    )
  )
  assert lines == [
    'Memory of a compiled step, relative to plain: tiny 0.10, small 0.40, '
    'quick 1.20.',
    'Within 1% of the loss of `plain`, `small` takes the least memory: '
    '60.0% less.',
    'Time of a step, relative to plain: tiny 0.50, quick 0.80, small 1.50.',
    'Within 1% of the loss of `plain`, `quick` takes the least time: '
    '20.0% less.',
    'Worse in loss by more than that: tiny (1.250 times).',
  ]


def test_what_is_noise_has_no_rank():
  lines = verdicts.ranking(
    summarize(plain=(2.0, 100, 1), near=(2.0, 100, 0.95), slow=(2.0, 100, 2))
  )
  assert lines == [
    'Memory of a compiled step, relative to plain: no difference seen.',
    'Time of a step, relative to plain: slow 2.00; no difference seen between '
    'near 0.95, plain 1.00.',
  ]


def test_without_a_profile_no_time_is_called_that_of_a_step():
  grid = made.grid()
  scores = {'loss': 2.0, 'accuracy': 0.5}
  # Two processes of one variant have had 537.9 and 856.1 MiB.
  rows = made.rows(
    made.row('narrow', 0, scores, seconds=10.0, peak_memory_bytes=538 * MIB),
    made.row('wide', 0, scores, seconds=30.0, peak_memory_bytes=856 * MIB),
  )
  lines = verdicts.ranking(summary_lib.summarize(grid, rows))
  assert lines == [
    'Time of a training with its compilation, relative to narrow: wide 3.00.',
  ]


def test_two_as_quick_share_the_first_place():
  lines = verdicts.ranking(
    summarize(plain=(2.0, 100, 1), a=(2.0, 100, 0.5), b=(2.0, 100, 0.52))
  )
  assert lines[2:] == [
    'Within 1% of the loss of `plain`, `a` and `b` take the least time: '
    '48.0% less.'
  ]


def test_no_gain_is_claimed_without_one():
  lines = verdicts.ranking(summarize(plain=(2.0, 100, 1), big=(2.0, 110, 2)))
  assert not [line for line in lines if line.startswith('Within')]
  assert verdicts.ranking(summarize(plain=(2.0, 100, 1))) == []


def test_higher_scores_may_not_fall():
  grid = made.grid(metrics=(('accuracy', 'higher', 'accuracy'),))
  rows = made.rows(
    made.row('narrow', 0, {'accuracy': 0.8}),
    made.row('wide', 0, {'accuracy': 0.7}),
  )
  summary = summary_lib.summarize(grid, rows)
  assert verdicts.keeps_quality(summary, 'narrow')
  assert not verdicts.keeps_quality(summary, 'wide')


def test_without_a_baseline_there_is_no_ranking():
  grid = made.grid(baseline='')
  rows = made.rows(made.row('narrow', 0, {'loss': 1.0, 'accuracy': 1.0}))
  assert verdicts.ranking(summary_lib.summarize(grid, rows)) == []
