"""What was prepared, for the terminal."""


def text(record: dict, folder: str, written: bool) -> str:
  """Returns the lines to print about a dataset."""
  lines = [f'{folder}: {"written" if written else "is there, nothing to do"}']
  for split, count in record['examples'].items():
    lines.append(f'  {split:<12}{count:>9,} examples')
    for name, found in record['lengths'].get(split, {}).items():
      told = ', '.join(f'{key} {value:,.0f}' for key, value in found.items())
      lines.append(f'    {name}: {told}')
    if by_class := record['examples_by_class'].get(split):
      told = ', '.join(f'{key} {value:,}' for key, value in by_class.items())
      lines.append(f'    {record["label"]}: {told}')
  for one in record['duplicates']:
    first, second = one['first'], one['second']
    place = 'twice in' if first == second else f'in {first} and'
    lines.append(
      f'  {one["contents"]:,} example(s) {place} {second}, such as '
      f'{one["example"][0]} and {one["example"][1]}'
    )
  return '\n'.join(lines)
