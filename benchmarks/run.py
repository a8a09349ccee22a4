"""Runs a suite of benchmarks: a row for each case, as soon as it is measured.

  python -m benchmarks.run --suite=published [--resume] [--only=REGEX]

Suites are the files of benchmarks/suites; rows go to
benchmarks/results/<suite>.jsonl. What fails becomes a row with its error.
--resume leaves out cases that have a row of this commit, device and these
parameters; --quick runs everything at small sizes, and --minutes=8 starts no
case after 8 minutes. Cases that are compared run in turns; --until=2% adds
rounds until the 95 % intervals of their ratios reach no farther than 2 % from
them. Afterwards `python -m benchmarks.report` writes tables and plots into
docs/.

--rehearse runs a GPU's suite without one, see harness/rehearsal.py.
"""

from absl import flags

from launch import command

SUITE = flags.DEFINE_string('suite', '', 'A file of benchmarks/suites.')
RESUME = flags.DEFINE_bool('resume', False, 'Leave out cases with a row.')
ONLY = flags.DEFINE_string('only', '', 'Only cases whose name matches this.')
REPEATS = flags.DEFINE_integer('repeats', 0, "0: each case's own number.")
UNTIL = flags.DEFINE_string(
  'until', '0%', 'Repeat until ratios are known so well; 0%: the number above.'
)
MINUTES = flags.DEFINE_float(
  'minutes', 0.0, 'Start no case after so many; 0: no limit.', lower_bound=0.0
)
REHEARSE = flags.DEFINE_bool('rehearse', False, 'Run all of it without a GPU.')
QUICK = flags.DEFINE_bool('quick', False, 'Small sizes: a rehearsal.')
RESULTS = flags.DEFINE_string(
  'results', '', 'Folder of rows; empty: benchmarks/results.'
)


def main(argv: list[str]) -> None:
  del argv
  from benchmarks.harness import rows
  from benchmarks.harness import runner

  runner.run(
    runner.Request(
      suite=SUITE.value,
      only=ONLY.value,
      repeats=REPEATS.value,
      until=runner.share(UNTIL.value),
      minutes=MINUTES.value,
      quick=QUICK.value,
      rehearse=REHEARSE.value,
      resume=RESUME.value,
      folder=RESULTS.value or rows.RESULTS,
    )
  )


if __name__ == '__main__':
  command.run(main)
