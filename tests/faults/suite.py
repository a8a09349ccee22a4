"""What goes wrong around the commands: kills, disks, damage, strangers.

Each attempt is a command in a process of its own. It must end as its group
says: what works has the result of an undisturbed run, and what is refused says
so in one line that names the cause. Code of a stranger never runs.

  python -m tests.faults [--only=REGEX]
  python -m tests.faults --quick --results=FOLDER

A row for each group goes to benchmarks/results/faults.jsonl, of which
`python -m benchmarks.report` makes the table of docs/faults.md.
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from tests.faults import commands

GROUPS = {  # by name of the case: who makes the attempts, and what is tested
  'values of the config': (
    'values.config_values',
    'each key of the config at hostile values of its type',
  ),
  'values of flags': ('values.flag_values', 'hostile flags of 13 commands'),
  "strangers' runs": (
    'strangers.runs',
    'hostile config.json, tokenizer.json and data.json, opened by 3 commands',
  ),
  "strangers' modules": (
    'strangers.imports',
    'a config.json that names a payload on the path, opened by 6 commands',
  ),
  "strangers' data": (
    'strangers.data',
    'zips, tarballs, pickles, Parquet, JSON lines, CSV, texts, links, pipes',
  ),
  "strangers' rows": (
    'given.rows',
    'JSON lines, CSV, Parquet, texts, links, pipes, given to predict and to '
    'evaluate --input',
  ),
  "users' tables": (
    'tables.tables',
    'CSV, JSON lines, Parquet and texts as spreadsheets, data frames and hubs '
    'write them, trained on, prepared, predicted, evaluated and scored',
  ),
  "users' series": (
    'series.tables',
    'tables of series with text, infinities, dates of years 1 and 9999, two '
    'frequencies, gaps, a million columns, trained on',
  ),
  'texts that explode': (
    'exploding.texts',
    'patterns of names, chat templates and tokenizers that ask for more memory '
    'or time than there is',
  ),
  "strangers' models": (
    'strangers.models',
    'safetensors and pickles, read as each format',
  ),
  "strangers' GGUF": (
    'gguf.files',
    'headers whose counts, lengths and offsets lead out of the file, '
    'each value of another type or size, vocabularies, cuts and bits',
  ),
  "strangers' folders": (
    'folders.folders',
    'model folders with pipes, devices, links, sparse files, and the cache of '
    'the hub',
  ),
  "strangers' values": (
    'folders.values',
    'each key of 16 architectures and GPT-2, tokenizers, templates and indices '
    'of another type or size',
  ),
  "strangers' adapters": (
    'adapters.runs',
    'each key of init.json, and its files, opened by 3 commands',
  ),
  "strangers' special files": (
    'adapters.files',
    'each file of a run as a pipe, a socket, a device, a link out of it',
  ),
  'damaged files': (
    'damage.files',
    'each file of a run emptied, cut, flipped, removed, extended, or a folder',
  ),
  'kept corpus': (
    'kept.corpus',
    'each file of the token files, and their folder: bits, zeros, cuts, links, '
    'pipes, other owners, before a training or an evaluation',
  ),
  'packed weights': (
    'packed.files',
    'a file of launch.quantize, its header and its folder: bits, zeros, cuts, '
    'links, pipes, other owners, sizes, before text is written',
  ),
  'other machines': (
    'machines.commands_on_them',
    'closed, full and left outputs, encodings, few descriptors, deleted '
    'folders, a relative XDG_CACHE_HOME, unusual names, for 8 commands',
  ),
  'calibration and classes': (
    'calibration.attempts',
    'hostile calibration.json, thresholds, rows to calibrate on, and weights '
    'of classes',
  ),
  "users' steps": (
    'users.steps',
    'fine-tuning with flags in all orders, grids, modules, exports',
  ),
  'nothing to predict': (
    'nothing.splits',
    'pairs that fit no row, and splits whose labels are all hidden',
  ),
  'changed data': (
    'changes.data',
    'texts that changed under a run, held-out copies, links to themselves',
  ),
}
COUNTED = {  # which ones, how many, how many in a rehearsal, what is tested
  'kills': ('kills', 50, 2, 'SIGKILL at random moments, then resumed'),
  'signals': (
    'signals',
    3,
    1,
    'TERM, INT and HUP in 8 phases, then resumed; 10 s to end',
  ),
  'outputs that nobody reads': (
    'outputs',
    79,
    2,
    'stdout and stderr closed, full, unread, or their reader gone, in 8 phases '
    'with TERM, INT or HUP, then resumed; and without a signal',
  ),
  'pairs of signals': (
    'pairs',
    27,
    2,
    'TERM, INT and HUP, another one 0.05, 0.6 or 2.5 s later, then resumed',
  ),
  'full disks': (
    'disks',
    30,
    2,
    'disks of rising sizes that fill, then have space; resumed',
  ),
  'full disks of results': (
    'results',
    12,
    2,
    'disks that fill under predictions, and under scores',
  ),
  'clocks': (
    'clocks',
    20,
    2,
    "Python's clock jumps by 400 days, forwards or back, at random moments",
  ),
  'requests to the server': (
    'requests',
    5000,
    60,
    'each field of each route at hostile values, changed and cut-off bytes, '
    'clients that leave or never read, 300 idle ones where 256 files may be '
    'open',
  ),
}
GENERATION = 'varied calls of a generator'
FEW = 3  # attempts of a group in a rehearsal


def cases(quick: bool) -> list[case.Case]:
  """A case for each group of attempts."""
  made = [
    _case(
      name, 'commands.tried', {'group': group, 'limit': FEW if quick else 0}
    )
    for name, (group, _) in GROUPS.items()
  ]
  for name, (group, *counts, _) in COUNTED.items():
    count = {'count': counts[quick]}
    if group == 'requests':
      made.append(_case(name, 'clients.requests', count))
    else:
      made.append(_case(name, 'stops.tried', {'group': group} | count))
  count = {'count': 20 if quick else 1000}
  return [*made, _case(GENERATION, 'generation.calls', count)]


def _case(name, workload, parameters):
  return case.Case(
    name, f'{case.FUZZER}.{workload}', parameters, repeats=0, timeout=3600
  )


select = tables.newest_of_any_device  # none depends on the device


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """The attempts and what went wrong, by group and in all."""
  del plots
  groups = {name: row for name, row in rows.items() if name != GENERATION}
  good = [row for row in groups.values() if 'error' not in row]
  kinds = {kind.replace(' ', '_'): kind for kind in commands.KINDS}
  total = {
    key: sum(row[key] for row in good) for key in ('tried', 'survived', *kinds)
  }
  described = {name: words for name, (*_, words) in (GROUPS | COUNTED).items()}
  yield tables.table(
    'group | what is tested | cases | survived',
    [
      [name, described.get(name, ''), *_counts(row)]
      for name, row in groups.items()
    ]
    + [['all', '', *_counts(total)]],
  )
  yield tables.table(
    ' | '.join(kinds.values()), [[f'{total[key]:,}' for key in kinds]]
  )
  quiet = max((row.get('longest_silence', 0) for row in good), default=0)
  yield f'The longest time without a line of output: {quiet:.0f} s.'
  for name, row in groups.items():
    for defect in row.get('defects', ()):
      yield f'{name}, {defect["name"]}: {defect["kind"]}, {defect["words"]}'
  yield from tables.failures(rows)
  if (row := rows.get(GENERATION)) and 'error' not in row:
    yield _generation(row)


def _counts(row):
  if 'error' in row:
    return tables.short(row), '-'
  return f'{row["tried"]:,}', f'{row["survived"]:,}'


def _generation(row):
  before, after = row['resident_first_bytes'], row['resident_last_bytes']
  return (
    f'{row["tried"]:,} calls of one generator, each with other options: '
    f'{row["compilations"]} compilations, {tables.mebibytes(before)} of memory '
    f'after a fifth of the calls and {tables.mebibytes(after)} after all.'
  )
