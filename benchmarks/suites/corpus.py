"""Corpora larger than memory: starts, memory, waiting; batches by themselves.

A corpus of a start is made of the source files of Python's standard library:
shuffled, one after the other, and repeated until there are as many bytes as the
case says, either as files of text or as rows of JSON Lines. Then the main job
is started on it, stopped, and started again. The first start reads the corpus
and writes token files, the second finds them. BPE is trained first, on all
training text or on a sample of it. Memory is that of all processes of the
command, from /proc.

'pipeline' reads batches while nothing computes on them. 'resume' is at a step
of a run: a process writes token files of texts that repeat
(benchmarks/workloads/repeated_text.py), by the store's own writer, and another
opens them and makes the batch of that step. Files that were just written are
read from memory; the pages aren't part of the process's.

  python -m benchmarks.run --suite=corpus      20 GB of disk
"""

import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.harness import workers

GB = 10**9
FILE = 10**6  # bytes of a file of text
ROW = 1500  # bytes of a row's text
EVERY = 0.2  # seconds between measurements of memory
SHOWN = 200  # of them in a row
BPE = {'data.tokenizer': 'bpe', 'data.vocabulary': 4096}
SAMPLE = 'data.tokenizer_bytes'
JOBS = {
  'files, bytes': ('text', {}, (0.1, 1.0, 10.0)),
  'rows, BPE of all': ('jsonl', BPE | {SAMPLE: 0}, (0.1,)),
  'rows, BPE of 16 MiB': ('jsonl', BPE | {SAMPLE: 2**24}, (0.1, 1.0)),
}
QUICK = {SAMPLE: 2**20}  # of 10 MB
ROWS = 'benchmarks.workloads.repeated_text'
READ = {  # name: what section `data` has that is not the default
  'buckets': {},
  'sorted': {'layout': 'sorted'},
  'packed': {'layout': 'packed'},
  'stream': {'layout': 'stream'},
  'buckets, BPE': {'tokenizer': 'bpe', 'vocabulary': 4096},
  'buckets, 1 worker': {'workers': 1},
  'buckets, 2 workers': {'workers': 2},
}
BATCHES = 500  # that are read at once
STEP = 10**6
DOCUMENTS = {'1 MB': 10**6, '1,500 bytes': 1500}
TINY = {
  'model.layers': 1,
  'model.width': 16,
  'model.mlp_width': 16,
  'cell.heads': 2,
  'cell.value_width': 8,
}


def cases(quick: bool) -> list[case.Case]:
  """A case for each kind of corpus and size, and of batches by themselves."""
  read = [
    case.Case(
      f'pipeline: {name}',
      'suites.corpus.read',
      {'count': 20 if quick else BATCHES, 'data': data},
      repeats=2 if quick else 10,
    )
    for name, data in READ.items()
  ]
  resumed = [
    case.Case(
      f'resume: {size:g} GB, documents of {name}',
      'suites.corpus.resume',
      {'size': size, 'row': row, 'step': 1000 if quick else STEP},
      repeats=0,
      timeout=3600,
    )
    for size in ((0.01,) if quick else (10.0,))
    for name, row in DOCUMENTS.items()
  ]
  return (
    read
    + resumed
    + [
      case.Case(
        f'{job}: {size:g} GB',
        'suites.corpus.starts',
        {
          'source': source,
          'size': size,
          'steps': 100 if quick else 200,
          'overrides': {**overrides, **(_tiny(overrides) if quick else {})},
        },
        repeats=0,
        timeout=3600,
      )
      for job, (source, overrides, sizes) in JOBS.items()
      for size in ((0.01,) if quick else sizes)
    ]
  )


def _tiny(overrides):
  return TINY | (QUICK if overrides.get(SAMPLE) else {})


def starts(
  source: str, size: float, steps: int, overrides: tables.Row
) -> measure.Values:
  """Two starts of the main job on a corpus.

  Args:
    source: 'text' or 'jsonl'.
    size: GB of text.
    steps: of each start.
    overrides: of configs/stdlib_bytes.py, {'section.key': value}.
  """
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    path, count = make(root / 'corpus', source, int(size * GB))
    flags = {
      'data.source': source,
      'data.path': path,
      'data.cache': root / 'cache',
      'evaluate.every': 10**6,
      'sample.new_tokens': 0,
      'train.steps': 10**6,
      'train.log_every': 10,
      **({'data.field': 'text'} if source == 'jsonl' else {}),
      **overrides,
    }
    values = {
      'documents': count,
      'text_bytes': int(size * GB),
      'sample_bytes': overrides.get(SAMPLE),
    }
    for start in ('first', 'second'):
      values |= {
        f'{start}_{name}': value
        for name, value in _start(root / 'run', flags, steps).items()
      }
    kept = [p.stat().st_size for p in (root / 'cache').rglob('*')]
    return values | {'cache_bytes': sum(kept)}


def read(repeats: int, count: int, data: tables.Row) -> measure.Values:
  """Seconds to read batches of configs/stdlib_bytes.py, and their tokens.

  Args:
    repeats: how often.
    count: batches that are read at once.
    data: changes of section `data`.
  """
  from rnn_jax.data import pipeline

  config, corpus = _open(data)
  batches = pipeline.training_batches(corpus, config)
  tokens = []

  def run():
    weights = (next(batches).weights_BxL for _ in range(count))
    tokens.append(sum(int(each.sum()) for each in weights))

  try:
    values = measure.repeat(run, repeats)
  finally:
    batches.close()
  mean = sum(tokens[-repeats:]) / repeats
  return values | {'tokens_per_second': mean / values['mean']}


def resume(size: float, row: int, step: int) -> measure.Values:
  """Seconds and memory to the batch of a step of a run on a large corpus.

  Args:
    size: GB of text.
    row: bytes of a document.
    step: of the run.
  """
  from rnn_jax.data import pipeline
  from rnn_jax.system import host

  with tempfile.TemporaryDirectory() as folder:
    data = {'source': ROWS, 'total_bytes': int(size * GB), 'row_bytes': row}
    data['cache'] = folder
    begin = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(
      1, multiprocessing.get_context('spawn')
    ) as pool:
      written = pool.submit(_written, data, step).result()
    seconds = {'written_seconds': time.monotonic() - begin}
    memory = host.Memory()
    begin = time.monotonic()
    config, corpus = _open(data)
    seconds['opened_seconds'] = time.monotonic() - begin
    batches = pipeline.training_batches(corpus, config)
    batches.set_state({'batch': written.pop('number')})
    next(batches)
    seconds['first_batch_seconds'] = time.monotonic() - begin
    batches.close()
    return written | seconds | memory.values()


def _open(data):
  from rnn_jax import config as config_lib
  from rnn_jax.data import corpus as corpus_lib

  config = config_lib.parse({'data': data})
  return config, corpus_lib.Corpus.open(config, None)


def _written(data, step):
  """Writes token files; returns the number of the batch of a step, and more."""
  from rnn_jax.data import pipeline
  from rnn_jax.data.batching import plan

  config, corpus = _open(data)
  (stage,) = pipeline.training_stages(corpus, config)
  block, place = divmod(step, len(stage.plan(0).shapes))
  return {
    'number': block * plan.EACH + place,
    'documents': len(corpus.documents['train']),
    'windows': len(stage.windows),
  }


def make(
  folder: pathlib.Path, source: str, size: int
) -> tuple[pathlib.Path, int]:
  """Writes a corpus of `size` bytes of text.

  Returns:
    Its path for `data.path`, and the number of documents.
  """
  folder.mkdir()
  texts = _sources()
  rng, count = random.Random(0), 0
  length = FILE if source == 'text' else ROW
  if source == 'text':
    path = folder / '*.txt'
  else:
    path = folder / 'rows.jsonl'
    rows = path.open('w', encoding='utf-8')
  for text in _documents(texts, rng, length, size):
    if source == 'text':
      (folder / f'{count:06}.txt').write_text(text, encoding='utf-8')
    else:
      rows.write(json.dumps({'text': text}) + '\n')
    count += 1
  if source != 'text':
    rows.close()
  return path, count


def _sources():
  """The texts of the standard library's files."""
  root = pathlib.Path(sysconfig.get_path('stdlib'))
  texts = []
  for path in sorted(root.glob('*.py')):
    text = path.read_bytes()
    if text.isascii():  # so that characters are bytes
      texts.append(text.decode())
  return texts


def _documents(texts, rng, length, size):
  """Yields texts of `length` bytes, `size` in all."""
  held, total = '', 0
  while True:
    rng.shuffle(texts)
    for text in texts:
      held += text
      at = 0
      while len(held) - at >= length:
        yield held[at : at + length]
        at += length
        total += length
        if total >= size:
          return
      held = held[at:]


def _start(workdir, flags, steps):
  """Trains for `steps` steps, from the command on; returns a row's values."""
  command = [sys.executable, '-u', '-m', 'launch.train']
  command += ['--config=configs/stdlib_bytes.py', f'--workdir={workdir}']
  command += [f'--config.{key}={value}' for key, value in flags.items()]
  before = _rows(workdir)
  begin = time.monotonic()
  process = subprocess.Popen(
    command,
    cwd=workers.ROOT,
    env={**os.environ, 'JAX_ENABLE_COMPILATION_CACHE': 'true'},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  memory, lines, first = [], [], []

  def read():
    for line in process.stdout:
      lines.append(line)
      if line.startswith('first step after'):
        first.append(time.monotonic() - begin)

  reader = threading.Thread(target=read, daemon=True)
  reader.start()
  try:
    while process.poll() is None:
      memory.append((time.monotonic() - begin, _resident(process.pid)))
      if len(_rows(workdir)) - len(before) > steps // 10:
        process.send_signal(signal.SIGTERM)
        break
      time.sleep(EVERY)
    process.wait(60)
  finally:
    process.kill()
    reader.join()
  if not first:
    raise RuntimeError(f'no first step: {"".join(lines[-2:]).strip()}')
  return _summary(_rows(workdir)[len(before) :], memory, first[0])


def _summary(rows, memory, first):
  rows = rows[1:]  # the first has the compilation
  trained = [size for at, size in memory if at > first]
  chosen = memory[:: -(-len(memory) // SHOWN)]
  tokens = sum(row['tokens'] for row in rows)
  seconds = sum(row['seconds'] for row in rows)
  waited = sum(row['data_waiting_share'] * row['seconds'] for row in rows)
  return {
    'to_first_step': first,
    'tokens_per_second': tokens / seconds,
    'waiting_share': waited / seconds,
    'resident_peak_bytes': max(size for _, size in memory),
    'resident_training_bytes': max(trained, default=0),
    'resident_over_time': [[round(at, 1), size] for at, size in chosen],
  }


def _rows(workdir):
  """The rows on training steps so far."""
  path = workdir / 'metrics.jsonl'
  if not path.exists():
    return []
  lines = path.read_text().splitlines()
  rows = [json.loads(line) for line in lines if line.endswith('}')]
  return [row for row in rows if row.get('split') == 'train']


def _resident(pid):
  """The resident bytes of a process and of those that it started."""
  total = 0
  for process in (pid, *_children(pid)):
    try:
      status = pathlib.Path(f'/proc/{process}/statm').read_text().split()
    except OSError:
      continue  # it has just ended
    total += int(status[1]) * os.sysconf('SC_PAGE_SIZE')
  return total


def _children(pid):
  try:
    text = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text()
  except OSError:
    return
  for child in text.split():
    yield child
    yield from _children(child)


def _seconds(key):
  return lambda row: tables.seconds(row[key])


def _mebibytes(key):
  return lambda row: tables.mebibytes(row[key])


def _sample(row):
  """Of how much text the vocabulary was made."""
  limit = row.get('sample_bytes')
  if limit is None:
    return '-'
  return tables.mebibytes(min(limit, row['text_bytes']) or row['text_bytes'])


COLUMNS = {
  'documents': lambda row: f'{row["documents"]:,}',
  'BPE made from': _sample,
  'token files': _mebibytes('cache_bytes'),
  'first start to its first step': _seconds('first_to_first_step'),
  'second start': _seconds('second_to_first_step'),
  'memory of the first': _mebibytes('first_resident_peak_bytes'),
  'of the second': _mebibytes('second_resident_peak_bytes'),
  'tokens/s': lambda row: tables.rate(row['second_tokens_per_second']),
  'waiting for data': lambda row: f'{100 * row["second_waiting_share"]:.2f} %',
}


READ_COLUMNS = {
  'tokens/s': lambda row: tables.rate(row['tokens_per_second']),
  'batches': tables.timed,
}
RESUMED_COLUMNS = {
  'documents': lambda row: f'{row["documents"]:,}',
  'windows': lambda row: f'{row["windows"]:,}',
  'to open': _seconds('opened_seconds'),
  'to the first batch': _seconds('first_batch_seconds'),
  'memory': _mebibytes('resident_delta_bytes'),
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each corpus, memory over time; batches by themselves."""
  alone = {
    prefix: tables.with_prefix(rows, prefix)
    for prefix in ('pipeline: ', 'resume: ')
  }
  rows = {n: x for n, x in rows.items() if not n.startswith((*alone,))}
  yield tables.by_row('corpus', rows, COLUMNS)
  if read := alone['pipeline: ']:
    yield tables.by_row('batches by themselves', read, READ_COLUMNS)
  if resumed := alone['resume: ']:
    yield tables.by_row('resume at step 10^6', resumed, RESUMED_COLUMNS)
  good = {name: row for name, row in rows.items() if 'error' not in row}
  for start in ('first', 'second'):
    series = {
      name: [
        (seconds, size / 2**20)
        for seconds, size in row[f'{start}_resident_over_time']
        if seconds > 0
      ]
      for name, row in good.items()
    }
    if series:
      labels = f'seconds since the {start} start', 'resident memory, MiB'
      yield plots.lines(f'{start}_memory', series, labels, 'linear')
