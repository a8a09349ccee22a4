"""Forecasts series of numbers with a trained run.

  python -m launch.forecast --workdir=runs/load --input=load.csv \\
      --output=forecast.csv --plot=forecast.png
  python -m launch.forecast --workdir=runs/load --input=load.csv \\
      --horizon=24 --quantiles=0.1,0.5,0.9
  python -m launch.forecast --workdir=runs/sales --input=sales.csv \\
      --future=prices.csv --output=forecast.csv

--input is a table as the run was trained on: .csv, .tsv, .parquet, .npz, a glob
or a folder; --future has what is known of the times to come. Each reading to
come becomes a row: the series, the time and its quantiles, q0.1 and so on. With
--output=*.csv, *.tsv or *.parquet it is a row of such a table, else a JSON
line. --samples=100 draws paths of readings step by step, path1 and so on, and
the quantiles are theirs. Of a run with data.targets each row has its target.
--plot draws the first series with their intervals. See docs/series.md.
"""

import sys

from absl import flags

from launch import command

PURPOSE = 'Use'
WORKDIR, CHECKPOINT = command.define_run()
INPUT = flags.DEFINE_string(
  'input', None, 'Table with the readings so far.', required=True
)
OUTPUT = flags.DEFINE_string(
  'output',
  '',
  'File to write, .jsonl, .csv, .tsv or .parquet; it must not exist yet; '
  'empty: JSON lines on standard output.',
)
FUTURE = flags.DEFINE_string(
  'future',
  '',
  'Table with what is known of the times to come, the columns of data.known; '
  'empty: it is in rows of --input without a reading.',
)
HORIZON = flags.DEFINE_integer(
  'horizon', 0, 'Readings to forecast; 0: as many as in training.'
)
QUANTILES = flags.DEFINE_list(
  'quantiles', [], 'Ascending levels, as 0.1,0.5,0.9; empty: those of the run.'
)
SAMPLES = flags.DEFINE_integer(
  'samples',
  0,
  'Paths of readings to draw step by step, of any horizon; 0: none.',
)
SEED = flags.DEFINE_integer('seed', 0, 'Seed of the paths.')
PLOT = flags.DEFINE_string('plot', '', 'Draw a fan chart to this PNG.')


def main(argv):
  from rnn_jax import config as config_lib
  from rnn_jax.inference import forecast
  from rnn_jax.inference import forecast_rows
  from rnn_jax.inference import model as model_lib
  from rnn_jax.inference import predict_output
  from rnn_jax.inference import series_streams
  from rnn_jax.runs import workdir as workdir_lib
  from rnn_jax.system import streams

  del argv
  if not OUTPUT.value:
    streams.stdout_is_the_result()
  config = config_lib.parse(workdir_lib.load_config(WORKDIR.value))
  series_streams.check_forecasts(config)
  levels = _levels() or config.task.quantiles
  horizon = HORIZON.value or config.data.horizon
  predict_output.check(OUTPUT.value)
  with predict_output.opened(OUTPUT.value) as write:
    model = model_lib.load(WORKDIR.value, CHECKPOINT.value).forecaster
    sampling = forecast.Sampling(SAMPLES.value, SEED.value)
    model.check(horizon, levels, sampling)
    panel = model.read_file(INPUT.value, '--input', FUTURE.value)
    made = model.forecasts(panel.series, horizon, levels, sampling)
    write(forecast_rows.rows(made, config.data.id, config.data.time))
  if PLOT.value:
    from rnn_jax.inference import fan_chart

    fan_chart.draw(panel, made, PLOT.value)
  print(f'{len(made):,} series, {horizon} readings each', file=sys.stderr)


def _levels():
  from rnn_jax import errors

  try:
    return tuple(map(float, QUANTILES.value))
  except ValueError:
    return errors.refuse(
      '--quantiles', ','.join(QUANTILES.value), 'give numbers, as 0.1,0.5,0.9'
    )


if __name__ == '__main__':
  command.run(main)
