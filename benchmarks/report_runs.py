"""Prints a Markdown table of benchmarks/results/runs.jsonl.

python -m benchmarks.report_runs
"""

import json
import pathlib

RESULTS = pathlib.Path(__file__).parent / 'results' / 'runs.jsonl'
HEAD = (
  'run',
  'parameters',
  'steps',
  'tokens',
  'training',
  'tokens/s',
  'held-out split',
  'nats a token',
  'bits per byte',
  'gzip, xz',
  'peak memory',
  'commit',
)


def main():
  print('| ' + ' | '.join(HEAD) + ' |')
  print('|' + ' --- |' * len(HEAD))
  for line in RESULTS.read_text().splitlines():
    row = json.loads(line)
    held_out = row['held_out']
    cells = (
      row['name'],
      f'{row["parameters"]:,}',
      f'{row["steps"]:,}',
      f'{row["tokens"] / 1e6:.2f} M',
      f'{row["seconds"] / 60:.1f} min',
      f'{row["tokens_per_second_median"]:,.0f}',
      held_out['split'],
      f'{held_out["loss"]:.4f}',
      f'{held_out["bits_per_byte"]:.4f}',
      f'{held_out["gzip"]:.3f}, {held_out["xz"]:.3f}',
      f'{row["peak_memory_bytes"] / 2**20:,.0f} MiB',
      row['commit'],
    )
    print('| ' + ' | '.join(cells) + ' |')


if __name__ == '__main__':
  main()
