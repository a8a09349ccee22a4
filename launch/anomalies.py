"""Finds anomalies in series of numbers with a trained run.

  python -m launch.anomalies --workdir=runs/load --input=new.csv \\
      --held_out=clean.csv --false_alarms=0.001 --output=scored.csv

--input is a table as the run was trained on. Each reading becomes a row: the
series, the time, the reading, its score and whether it is an anomaly. The score
is -log of the probability of a reading as far out, by the forecast of the step
before it. An anomaly has a score that held-out readings exceed at the rate of
--false_alarms: those of --held_out, which has no anomalies and wasn't trained
on, or else those that the run held out of its own data. See docs/series.md.
"""

import sys

from absl import flags

from launch import command

PURPOSE = 'Use'
WORKDIR, CHECKPOINT = command.define_run()
INPUT = flags.DEFINE_string(
  'input', None, 'Table with the readings to score.', required=True
)
OUTPUT = flags.DEFINE_string(
  'output',
  '',
  'File to write, .jsonl, .csv, .tsv or .parquet; it must not exist yet; '
  'empty: JSON lines on standard output.',
)
HELD_OUT = flags.DEFINE_string(
  'held_out',
  '',
  'Table of readings without anomalies that the run was not trained on; empty: '
  'the validation and the test split of the run.',
)
FALSE_ALARMS = flags.DEFINE_float(
  'false_alarms', 0.001, 'Wanted rate of false alarms, per reading.'
)


def main(argv):
  from rnn_jax import config as config_lib
  from rnn_jax.inference import anomalies
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
  predict_output.check(OUTPUT.value)
  with predict_output.opened(OUTPUT.value) as write:
    detector = model_lib.load(WORKDIR.value, CHECKPOINT.value).detector
    panel = detector.read_file(INPUT.value, '--input')
    held_out = _held_out(detector, config)
    limit = anomalies.threshold(held_out, FALSE_ALARMS.value, '--false_alarms')
    found = detector.scores(panel.series)
    data = config.data
    names = data.id, data.time, data.value
    made = anomalies.rows(panel, found, limit, names)
    write(made)
  count = sum(row['anomaly'] for row in made)
  print(
    f'{len(made):,} readings, {count:,} anomalies, of scores above {limit:.4g}',
    file=sys.stderr,
  )


def _held_out(detector, config):
  """Returns scores of held-out readings."""
  from rnn_jax.data import corpus
  from rnn_jax.inference import anomalies

  if HELD_OUT.value:
    panel = detector.read_file(HELD_OUT.value, '--held_out')
    return detector.scores(panel.series)
  documents = corpus.load_documents(config)
  return detector.of_documents(documents[name] for name in anomalies.HELD_OUT)


if __name__ == '__main__':
  command.run(main)
