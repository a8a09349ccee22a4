"""Tables, claims and plots from given rows; no figure without a row."""

import json
import re
import shutil

import pytest

from benchmarks import report
from benchmarks import tables
from benchmarks.reports import published
from benchmarks.reports import scaling
from rnn_jax import errors

WHERE = {
  'device': 'a processor',
  'platform': 'cpu',
  'cores': 2,
  'python': '3.11',
  'versions': {'jax': '1'},
  'commit': 'abc',
  'time': '2000-01-01T00:00:00',
}
INDEXED = 'forward: PyTorch, indexed, '


def row(case, seconds=None, subject='ours.train_step', **others):
  timed = {}
  if seconds is not None:
    keys = ('median', 'mean', 'min')
    timed = dict.fromkeys(keys, seconds) | {'deviation': 0.0, 'repeats': 3}
  made = {'case': case, 'subject': subject, 'parameters': {}}
  return {**made, **timed, **WHERE, **others}


def write(folder, name, rows):
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  (folder / f'{name}.jsonl').write_text(lines)


@pytest.fixture(name='docs')
def _docs(tmp_path):
  folder = tmp_path / 'docs'
  folder.mkdir()
  return folder


def test_marked_parts_are_renewed_and_the_rest_is_kept(docs, tmp_path):
  page = docs / 'page.md'
  page.write_text('before\n<!-- benchmarks: pipeline -->old<!-- end -->after\n')
  page.write_text(page.read_text().replace('-->old', '-->\nold\n'))
  (docs / 'other.md').write_text('nothing')
  one = row('stream: both', 0.5, 'data.both', waiting_share=0.25)
  write(tmp_path, 'pipeline', [one | {'tokens_per_second': 1234.0}])
  assert report.write(docs, tmp_path) == [page]
  text = page.read_text()
  assert text.startswith('before\n') and text.endswith('<!-- end -->after\n')
  assert '| stream: both | 500 ms ± 0.00 µs | 1,234 | 25.0 % |' in text
  assert 'old' not in text
  assert report.write(docs, tmp_path) == [page]
  assert page.read_text() == text


def test_without_rows_a_part_says_how_to_measure(docs, tmp_path):
  told = report.section('decode', docs, tmp_path)
  assert told == 'Not measured yet: `python -m benchmarks.run --suite=decode`.'


def test_an_unknown_report_and_a_folder_without_marks_are_refused(docs):
  with pytest.raises(errors.InputError, match='no file holds a mark'):
    report.write(docs, docs)
  (docs / 'a.md').write_text('<!-- benchmarks: bogus -->\n<!-- end -->')
  with pytest.raises(errors.InputError, match='bogus'):
    report.write(docs, docs)


def test_the_newest_row_counts_but_a_missing_peer_hides_none():
  lost = {'failure': 'missing', 'error': 'no torch'}
  rows = [
    row('a', 1.0),
    row('a', 2.0),
    row('a', 3.0, quick=True),
    row('b', 4.0),
    row('b', **lost),
    row('c', 5.0, device='another processor', time='1999'),
    row('c', **lost),
    row('g', 6.0, device='a GPU', platform='gpu'),
  ]
  rows.insert(0, rows.pop(5))
  found = tables.machines(rows)
  assert {p: list(cases) for p, cases in found.items()} == {
    'cpu': ['a', 'b', 'c'],
    'gpu': ['g'],
  }
  assert found['cpu']['a']['median'] == 2.0
  assert found['cpu']['b']['median'] == 4.0
  assert found['cpu']['c']['error'] == 'no torch'


def test_claims_are_confirmed_or_corrected_by_what_was_measured():
  rows = [
    row(f'{INDEXED}separate, batch 1', 0.7, sequences=1),
    row(f'{INDEXED}separate, batch 32', 3.2, sequences=32),
    row(f'{INDEXED}fused, batch 32', 6.4, sequences=32),
    row('generation: PyTorch, indexed, rerun', 1.0),
  ]
  batches, fused, checkpointed, stepwise, *_ = published.claims(
    {row['case']: row for row in rows}
  )
  assert batches.endswith('7.21 times as fast: **confirmed**, 7 times here.')
  assert fused.endswith('1.02 times as fast: **corrected**, 0.5 times here.')
  assert checkpointed.endswith('1.14 times as fast: not measured here.')
  assert stepwise.endswith('a full re-run: not measured here.')


def test_the_published_report_holds_only_numbers_of_its_rows(docs, tmp_path):
  rows = [
    row('reference, first', 1.0),
    row('training: ours, fused, batch 32', 0.25, sequences=32),
    row('training: ours, recurrence removed, batch 32', 0.2, sequences=32),
    row(
      'training: PyTorch, careful, separate, batch 32',
      subject='torch_peer.train_step',
      failure='missing',
      error='torch is not installed',
    ),
    row('generation: ours, one loop', 0.002, seconds_per_token=2e-5),
    row('reference, last', 1.1),
  ]
  write(tmp_path, 'published', rows)
  told = report.section('published', docs, tmp_path)
  assert '| ours, fused, batch 32 | - | 2.00 s ± 0.00 µs | 32 x 3 |' in told
  assert 'takes 1.25 times the time of the same model without' in told
  assert 'torch is not installed' in told
  assert 'careful PyTorch loop' not in told
  assert '10.0 % apart' in told
  (picture,) = re.findall(r'\((plots/.*?\.png)\)', told)
  assert (docs / picture).stat().st_size > 1000


def test_exponents_growth_and_crossings_follow_from_the_rows(docs, tmp_path):
  rows = []
  for length in (1024, 8192, 65536):
    ours = row(f'length {length}: ours', length / 1e5, temp_bytes=length)
    full = row(
      f'length {length}: attention, full',
      length**2 / 1e9,
      temp_bytes=length**2,
    )
    rows += [ours, full]
  rows.append(
    row('length 262144: attention, full', failure='killed', error='killed')
  )
  write(tmp_path, 'scaling', rows)
  told = report.section('scaling', docs, tmp_path)
  assert '| ours | 1.00 | 1.00 |' in told
  assert '| attention, full | 2.00 | 2.00 |' in told
  assert 'the time of ours grows 8 times, the length 8 times.' in told
  assert 'Ours is faster than attention, full from 65,536 tokens on.' in told
  assert '| 262,144 | - | killed |' in told
  assert told.count('**confirmed**') == 4
  assert scaling.exponent([(1, 1.0)]) is None


def test_what_blocks_of_attention_save_follows_from_the_rows(docs, tmp_path):
  rows = [
    row(f'length 8192: {name}', seconds, temp_bytes=mebibytes * 2**20)
    for name, seconds, mebibytes in (
      ('exact', 8.0, 4000),
      ('blocked', 6.0, 200),
      ('window 256', 0.75, 150),
    )
  ]
  found = {'y': 1.25e-7, 'q': 2.5e-7}
  rows.append(row('difference 8192: blocked', differences=found))
  rows.append(row('row 197: linear, state', 0.5, temp_bytes=3 * 2**20))
  write(tmp_path, 'attention', rows)
  told = report.section('attention', docs, tmp_path)
  assert '| 8,192 | 8.00 s, 4,000 MiB | 6.00 s, 200 MiB | 750 ms, ' in told
  assert '* At 8,192 steps, blocks take 1/20 of the temporaries' in told
  assert 'window 256 is 8 times as fast as the faster form' in told
  assert 'of full attention, blocked.' in told
  assert 'at 8,192 steps by at most' in told and 'y 1.2e-07, q 2.5e-07' in told
  assert '| row | linear, state |' in told and '| 197 | 500 ms, 3' in told
  assert len(re.findall(r'\(plots/.*?\.png\)', told)) == 2
  lost = {'failure': 'killed', 'error': 'killed by it'}
  write(tmp_path, 'attention', [row('difference 8192: blocked', **lost)])
  told = report.section('attention', docs, tmp_path)
  assert 'Difference at 8192: blocked: killed by it.' in told


def test_what_techniques_save_is_a_share_of_the_plain_step(docs, tmp_path):
  def measured(name, mebibytes):
    sizes = dict.fromkeys(('optimizer', 'argument', 'temp'), mebibytes)
    sizes |= {'total': mebibytes}
    found = {f'{key}_bytes': size * 2**20 for key, size in sizes.items()}
    return row(f'gpt2: {name}', **found)

  rows = [
    measured('plain, whole', 1000),
    measured('8-bit, checkpoints, whole', 250),
    measured('plain', 900),
    measured('8-bit, checkpoints', 200),
    row('gpt2: flash', failure='killed', error='killed by it'),
  ]
  write(tmp_path, 'memory', rows)
  told = report.section('memory', docs, tmp_path)
  assert '| plain | 900 MiB | 900 MiB | 900 MiB | 900 MiB | 10.0% |' in told
  assert '| flash | killed by it | - | - | - | - |' in told
  assert 'save 78.1 % of the gpt2 size: **corrected**, 75.0% here' in told
  assert '80.0% with the loss in blocks besides.' in told


def test_choices_of_batches_are_told_by_data_set(docs, tmp_path):
  measured = {
    'padding_efficiency': 0.875,
    'shapes': [[8, 64], [4, 128]],
    'possible_shapes': 3,
    'batches': 12.5,
    'tokens_per_second': 4321.0,
    'trained_per_second': 1234.0,
    'examples': 99,
    'length': 128,
  }
  rows = []
  for name in ('reviews', 'dialogs'):
    data = {'tokens_per_batch': 512}
    same = {'parameters': {'name': name, 'data': data}}
    case, subject = f'{name}: padded', 'batching.epoch'
    rows.append(row(case, 0.5, subject, **measured | same))
  lost = {'failure': 'exception', 'error': 'no row'}
  rows.append(row('dialogs: stream', None, subject, **lost | same))
  write(tmp_path, 'batching', rows)
  told = report.section('batching', docs, tmp_path)
  assert told.count('99 examples, rows of 128 tokens at most, 512 tokens') == 2
  line = '| padded | 87.5 % | 2 of 3 | 12 | 500 ms ± 0.00 µs | 4,321 | 1,234 |'
  assert told.count(line) == 2
  assert '| stream | no row | - | - | - | - | - |' in told
  pictures = re.findall(r'\((plots/.*?\.png)\)', told)
  assert len(pictures) == 2 and all((docs / file).exists() for file in pictures)


def test_the_recall_report_says_what_was_learnt_and_what_not(docs, tmp_path):
  rows = [
    row(
      f'{source} {distance}: {model}',
      subject='recall.answers',
      held_out={'exact': exact, 'accuracy': accuracy, 'tokens': 400},
      weights=1234,
      steps=7,
      chance=0.125,
    )
    for source, distance, model, exact, accuracy in (
      ('recall', 4, 'ours', 0.95, 0.95),
      ('recall', 8, 'ours', 0.5, 0.5),
      ('recall', 4, 'theirs', 0.2, 0.2),
      ('copying', 4, 'ours', 0.9, 0.97),
    )
  ]
  rows.append(row('copying 8: ours', failure='killed', error='killed by it'))
  write(tmp_path, 'recall', rows)
  told = report.section('recall', docs, tmp_path)
  assert '| ours | 1,234 | 7 | 95.0 % | 50.0 % |' in told
  assert '| theirs | 1,234 | 7 | 20.0 % | - |' in told
  assert '| ours | 1,234 | 7 | 90.0 % (97.0 % of letters) |' in told
  assert '* ours: 90 % or more at 4, not at 8.' in told
  assert '* theirs: 90 % at no distance measured.' in told
  assert 'a letter guessed is right in 12.5 % of cases' in told
  assert 'copying 8: ours: killed by it' in told
  assert len(re.findall(r'\(plots/.*?\.png\)', told)) == 1


def test_the_gradient_report_compares_octaves_of_the_delay(docs, tmp_path):
  slow = [9.0, 1.0, *[0.5] * 2, *[0.25] * 4]
  fast = [9.0, 1.0, *[1e-2] * 2, *[1e-4] * 4]
  gone = [9.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
  rows = [
    row(name, subject='gradient_flow.norms', norms=norms, **others)
    for name, norms, others in (
      ('SimpleRNN, initial', slow, {}),
      ('SimpleRNN, simple, initial', fast, {}),
      ('SimpleRNN, trained', slow, {'held_out': {'loss': 1.5}}),
      ('SimpleRNN, simple, trained', gone, {'held_out': {'loss': 1.75}}),
    )
  ]
  write(tmp_path, 'gradient_flow', rows)
  told = report.section('gradient_flow', docs, tmp_path)
  assert '| SimpleRNN, initial | - | 1.0e+00 | 5.0e-01 | 2.5e-01 |' in told
  assert '| SimpleRNN, trained | 1.500 |' in told
  assert 'over delays of 4 and more the gradient is 1/4 of that' in told
  assert "initial: over delays of 4 and more the improved preset's" in told
  assert 'is 2.5e+03 times' in told and "of the simple preset's there" in told


def test_each_optimizer_is_told_by_its_better_rate(docs, tmp_path):
  def measured(name, rate, loss, seconds, share):
    return row(
      f'{name}, {rate:g}',
      seconds,
      'optimizers.compare',
      parameters={'changes': {'name': name, 'learning_rate': rate}},
      held_out={'loss': loss},
      losses=[[10, 5.0], [20, loss]],
      steps=20,
      state_bytes=share * 1000,
      parameter_bytes=1000,
    )

  rows = [
    measured('adamw', 1e-3, 2.5, 0.5, 2),
    measured('adamw', 3e-3, 2.25, 0.9, 2),  # not its program's time
    measured('lion', 1e-3, 2.0, 0.4, 1),
    row('muon, 0.01', failure='killed', error='killed by it'),
  ]
  write(tmp_path, 'optimizers', rows)
  told = report.section('optimizers', docs, tmp_path)
  assert 'behind 20 steps' in told and 'muon, 0.01: killed by it' in told
  first = '| `lion` | 0.001 | 2.000 | - | 1,000 | 1.00 | 0.80 x |'
  second = '| `adamw` | 0.003 | 2.250 | 0.001: 2.500 | 2,000 | 2.00 | 1.00 x |'
  assert f'{first}\n{second}' in told
  (lacking,) = re.findall('Not measured yet: (.*)', told)
  assert '`shampoo, 0.001`' in lacking and '`lion, 0.0003`' in lacking
  assert '`lion, 0.001`' not in lacking and 'muon, 0.01' not in lacking
  (picture,) = re.findall(r'\((plots/.*?\.png)\)', told)
  assert (docs / picture).exists()


def test_the_report_on_cells_puts_three_rows_in_a_line(docs, tmp_path):
  held_out = {'exact': 0.75, 'accuracy': 0.75, 'loss': 1.5}
  given = {'steps': 200, 'data': 'shakespeare', 'distance': 16}
  made = {'size': 155, 'weights': 1234, 'held_out': held_out}
  curve = {'curve': [[10, 3.0], [20, 2.0]]}
  speed = {'tokens_per_second': 5000.0, 'temp_bytes': 2**21}
  better = made | curve | speed | {'held_out': {'loss': 1.25}}
  better['tokens_per_second'] = 6000.0
  rows = [
    row('gru: training', 0.5, parameters=given, **made, **curve, **speed),
    row('gru: training, 0.001', 0.4, parameters=given, **better),
    row('gru: decoding', 2e-4, state_bytes=2048) | {'min': 1e-4},
    row('gru: recall', 0.5, parameters=given, **made),
    row('lstm: training', error='exit code 1'),
  ]
  write(tmp_path, 'cells', rows)
  told = report.section('cells', docs, tmp_path)
  line = '| gru | 155 | 1,234 | 0.001 | 1.250 | 0.003: 1.500 | 6,000 | 2.00 MiB'
  assert f'{line} | 100 µs | 2.0 KiB | 75.0 % |' in told
  assert 'Medians of the latencies are 2 to 2 times the least' in told
  assert f'| lstm |{" - |" * 10}' in told
  assert 'lstm: training: exit code' in told
  assert '`qrnn: recall`; `qrnn: recall, 0.001`' in told
  assert '200 steps on shakespeare' in told and 'at distance 16' in told
  assert (docs / 'plots' / 'cells_cpu_loss.png').exists()


def test_every_report_of_the_repository_renders(docs, tmp_path):
  from benchmarks import rows as rows_lib

  for path in rows_lib.RESULTS.glob('*.jsonl'):
    shutil.copy(path, tmp_path)
  marked = docs.parents[0] / 'marked'
  shutil.copytree(rows_lib.RESULTS.parents[1] / 'docs', marked)
  names = {path.name for path in report.write(marked, tmp_path)}
  assert {'benchmarks.md', 'recurrence.md', 'results.md'} <= names


@pytest.mark.parametrize(
  ('value', 'text'),
  (
    (123.0, '123 s'),
    (1.0, '1.00 s'),
    (0.0123, '12.3 ms'),
    (4.5e-6, '4.50 µs'),
    (1e-9, '0.00 µs'),
  ),
)
def test_seconds_have_three_digits_in_a_unit_that_fits(value, text):
  assert tables.seconds(value) == text


@pytest.mark.parametrize(
  ('error', 'told'),
  (
    ('a | b\n  c', 'a / b c'),
    ('x' * 90, 'x' * 77 + '...'),
    (
      'JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating '
      '34427895808 bytes.',
      'out of memory at 32.1 GiB',
    ),
  ),
)
def test_errors_fit_in_a_cell(error, told):
  assert tables.short({'error': error}) == told
