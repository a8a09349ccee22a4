"""Random convolutions on the archive's series, as a yardstick.

MiniRocket (Dempster, Schmidt and Webb, "MiniRocket: A Very Fast (Almost)
Deterministic Transform for Time Series Classification", 2021): 10,000 features
of fixed convolutions and a ridge classifier, here aeon's with its defaults, on
the published split of each data set. The files are those that
configs/experiments/series_archive.py names. Series of different lengths are
padded with zeros at their ends, as MiniRocket takes only equal ones. Nothing is
timed.

  pip install aeon                      an environment of its own
  python -m benchmarks.run --suite=series_baselines
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from configs.experiments import series_archive

COLUMNS = {
  'accuracy': lambda row: f'{row["accuracy"]:.4f}',
  'macro F1': lambda row: f'{row["macro_f1"]:.4f}',
  'trained on': lambda row: f'{row["series"]:,}',
  'asked': lambda row: f'{row["asked"]:,}',
}


def cases(quick: bool) -> list[case.Case]:
  """Each data set."""
  names = series_archive.NAMES[: 1 if quick else None]
  return [
    case.Case(
      name, 'suites.series_baselines.accuracy', {'name': name}, repeats=0
    )
    for name in names
  ]


def accuracy(name: str) -> tables.Row:
  """Trains on the published training split, and is asked the test split."""
  import numpy as np
  from aeon import datasets
  from aeon.classification import convolution_based
  from sklearn import metrics

  variant = series_archive.get_grid().variants[name]
  parts = [
    datasets.load_from_ts_file(variant[key])
    for key in ('data.path', 'data.test_path')
  ]
  longest = max(series.shape[-1] for rows, _ in parts for series in rows)
  (train_NxCxL, labels), (asked_NxCxL, wanted) = (
    (np.stack([_padded(series, longest) for series in rows]), classes)
    for rows, classes in parts
  )
  model = convolution_based.MiniRocketClassifier(random_state=0)
  answers = model.fit(train_NxCxL, labels).predict(asked_NxCxL)
  return {
    'accuracy': float(metrics.accuracy_score(wanted, answers)),
    'macro_f1': float(metrics.f1_score(wanted, answers, average='macro')),
    'series': len(labels),
    'asked': len(wanted),
  }


def _padded(series_CxL, longest):
  import numpy as np

  missing = longest - series_CxL.shape[-1]
  return np.pad(series_CxL, ((0, 0), (0, missing))).astype(np.float32)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Accuracy on each data set."""
  del plots
  yield tables.by_row('MiniRocket', rows, COLUMNS)
