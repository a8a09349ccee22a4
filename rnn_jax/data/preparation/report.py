"""The summary of a prepared dataset that launch.prepare prints."""

from typing import Any


def text(record: dict[str, Any], folder: str, written: bool) -> str:
  """Returns the lines to print about a dataset."""
  lines = [f'{folder}: {"written" if written else "exists, nothing to do"}']
  for split, count in record['examples'].items():
    lines.append(f'  {split:<12}{count:>9,} examples')
    for name, points in record['lengths'].get(split, {}).items():
      values = ', '.join(f'{key} {value:,.0f}' for key, value in points.items())
      lines.append(f'    {name}: {values}')
    if by_class := record['examples_by_class'].get(split):
      values = ', '.join(f'{key} {value:,}' for key, value in by_class.items())
      lines.append(f'    {record["label"]}: {values}')
  # Datasets of earlier versions don't say what was skipped.
  for reason, count in record.get('skipped', {}).items():
    lines.append(f'  {count:,} example(s) skipped: {reason}')
  for one in record['duplicates']:
    first, second = one['first'], one['second']
    where = 'twice in' if first == second else f'in {first} and'
    lines.append(
      f'  {one["contents"]:,} example(s) {where} {second}, such as '
      f'{one["example"][0]} and {one["example"][1]}'
    )
  return '\n'.join(lines)
