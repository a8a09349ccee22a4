"""Run folders, datasets, archives and models that a stranger wrote.

Where one of them can name code, the code would write the canary.
"""

import io
import json
import os
import pathlib
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from rnn_jax.config import parts
from tests.faults import base
from tests.faults import commands

DEEP = '[' * 100_000
PAYLOAD = """import pathlib
pathlib.Path({canary!r}).write_text('run')
"""


class _Evil:
  """Its pickle writes the canary."""

  def __init__(self, canary: pathlib.Path) -> None:
    self._canary = canary

  def __reduce__(self) -> tuple[Any, ...]:
    return (os.system, (f'touch {self._canary}',))


def runs(shared: base.Base) -> Iterator[commands.Attempt]:
  """Opens run folders with hostile files."""
  for name, text in _configs(shared):
    for launcher, flags in (
      ('evaluate', ()),
      ('generate', ('--prompt=the', '--max_new_tokens=2')),
      ('inspect', ()),
    ):
      yield _opened(shared, f'config.json: {name}', launcher, flags, text)
  for name, text in _tokenizers():
    for launcher, flags in (
      ('evaluate', ()),
      ('generate', ('--prompt=the', '--max_new_tokens=2')),
    ):
      yield _opened(
        shared, f'tokenizer.json: {name}', launcher, flags, text, 'tokenizer'
      )
  for name, text in (
    ('a list', '[]'),
    ('deep', DEEP),
    ('NaN', '{"train": NaN}'),
    ('of other data', '{"train": {}, "validation": {}, "test": {}}'),
  ):
    yield _opened(shared, f'data.json: {name}', 'evaluate', (), text, 'data')
  yield commands.Attempt(
    'train --config=config.json, which is no Python',
    'train',
    [f'--config={shared.run / "config.json"}', '--workdir=/tmp/never'],
    says='Python file',
    finding=1,
  )


def _opened(shared, name, launcher, flags, text, file='config'):
  def arguments(folder):
    run = shared.copy(folder)
    (run / f'{file}.json').write_text(text)
    return [f'--workdir={run}', *flags]

  # Data that generation doesn't read may be anything.
  unread = launcher != 'evaluate' and file == 'config'
  return commands.Attempt(
    f'{launcher}: {name}',
    launcher,
    arguments,
    expects='either' if unread else 'refusal',
    says=f'{file}|module|choose|tokenizer|key|of type|give|path|fit|no checkp',
    finding=1,
  )


def _configs(shared):
  whole = shared.config_of_run()

  def changed(section, **values):
    return json.dumps(whole | {section: whole[section] | values})

  payload = shared.folder / 'payloads' / 'evil.py'
  payload.parent.mkdir(exist_ok=True)
  payload.write_text(PAYLOAD.format(canary=str(shared.canary)))
  yield 'empty', ''
  yield 'a number', '3'
  yield 'a list', '[]'
  yield 'null', 'null'
  yield 'nested 100,000 deep', DEEP
  yield (
    'NaN',
    json.dumps(whole | {'model': whole['model'] | {'dropout': 0.0}})[:-1]
    + ', "x": NaN}',
  )
  yield 'a model that is a number', json.dumps(whole | {'model': 3})
  yield 'a model that is a list', json.dumps(whole | {'model': [1]})
  yield 'data that are null', json.dumps(whole | {'data': None})
  yield 'an unknown section', json.dumps(whole | {'evil': {}})
  yield 'an unknown key', changed('model', evil=1)
  yield (
    'no version',
    json.dumps(
      {key: value for key, value in whole.items() if key != 'version'}
    ),
  )
  yield 'a version from the future', json.dumps(whole | {'version': '99.0.0'})
  yield 'a version that is a list', json.dumps(whole | {'version': [1]})
  yield 'a width that is a text', changed('model', width='x')
  yield 'a width of 10^9', changed('model', width=10**9)
  yield 'another width', changed('model', width=24)
  yield 'layers of 10^9', changed('model', layers=10**9)
  yield 'rows of 10^9 tokens', changed('data', length=10**9)
  yield 'a batch of 10^9', changed('data', batch_size=10**9)
  yield 'workers: 10^6', changed('data', workers=10**6)
  yield 'a path of devices', changed('data', path='/dev/zero')
  yield 'a path of nothing', changed('data', path='/nowhere/*')
  yield 'a prefetch of 10^12', changed('data', prefetch=10**12)
  for section, key in (kind.place for kind in parts.KINDS):
    yield (
      f'a module as {section}.{key}',
      changed(section, **{key: 'antigravity.evil'}),
    )
    yield (
      f'a module of the standard library as {section}.{key}',
      changed(section, **{key: 'this.x'}),
    )
  yield 'a module by path', changed('task', name='payloads.evil')
  yield 'a module by relative path', changed('task', name='../payloads.evil')
  yield 'checkpoints elsewhere', changed('train', checkpoint_dir='/proc/self')
  yield 'checkpoints in a bucket', changed('train', checkpoint_dir='gs:///x')


def _tokenizers():
  yield 'empty', ''
  yield 'a list', '[]'
  yield 'a number', '3'
  yield 'deep', DEEP
  yield 'no kind', '{}'
  yield 'an unknown kind', '{"kind": "pickle"}'
  yield 'a kind that is a number', '{"kind": 3}'
  yield 'bytes with a key more', '{"kind": "bytes", "x": 1}'
  yield (
    'characters that are a number',
    '{"kind": "characters", "characters": 3}',
  )
  yield 'BPE without merges', '{"kind": "bpe"}'
  yield 'BPE of rubbish', '{"kind": "bpe", "tokenizer": {"version": "9"}}'
  yield 'numbers without a size', '{"kind": "numbers"}'
  yield 'numbers of 10^12', '{"kind": "numbers", "size": 1000000000000}'


def imports(shared: base.Base) -> Iterator[commands.Attempt]:
  """Starts launchers in a folder where a run's config names a module."""
  for section, key in (kind.place for kind in parts.KINDS):
    for launcher, flags in (
      ('evaluate', ()),
      ('generate', ('--prompt=the',)),
      ('inspect', ()),
      ('quantize', ('--output=/tmp/never',)),
      ('prune', ('--output=/tmp/never', '--sparsity=0.5')),
      ('export', ('--format=safetensors', '--output=/tmp/never.safetensors')),
    ):
      yield commands.Attempt(
        f'{launcher}: {section}.{key} names a payload on the path',
        launcher,
        _with_payload(shared, section, key, flags),
        says='names a module',
        finding=1,
        environment={'PYTHONPATH': str(shared.folder / 'on_path')},
      )


def _with_payload(shared, section, key, flags):
  def arguments(folder):
    package = shared.folder / 'on_path' / 'theirs'
    package.mkdir(parents=True, exist_ok=True)
    (package / 'payload.py').write_text(
      PAYLOAD.format(canary=str(shared.canary))
    )
    run = shared.copy(folder)
    whole = shared.config_of_run()
    whole[section][key] = 'theirs.payload'
    (run / 'config.json').write_text(json.dumps(whole))
    return [f'--workdir={run}', *flags]

  return arguments


def data(shared: base.Base) -> Iterator[commands.Attempt]:
  """Prepares, or trains on, hostile files."""
  for name, write, expects in _files(shared):
    yield commands.Attempt(
      f'prepare: {name}',
      'prepare',
      _prepared(write),
      expects=expects,
      finding=6,
    )
  for name, write in _texts():
    yield commands.Attempt(
      f'train on {name}',
      'train',
      _trained(shared, write),
      expects='either',
      finding=6,
    )
  for name, feature in (
    ('a class of a module', {'pythonClassName': 'theirs.payload.X'}),
    ('a builtin', {'pythonClassName': 'builtins.eval'}),
    ('an own class of TFDS', {'pythonClassName': 'os.system'}),
  ):
    yield commands.Attempt(
      f'a prepared dataset with {name}',
      'train',
      _dataset(shared, feature),
      finding=1,
    )


def _prepared(write):
  def arguments(folder):
    path = write(folder)
    return [
      '--name=theirs',
      f'--data_dir={folder / "data"}',
      f'--input={path}',
      '--splits=60,20,20',
    ]

  return arguments


def _trained(shared, write):
  def arguments(folder):
    flags = write(folder)
    return [*shared.train(folder / 'run'), *flags]

  return arguments


def _dataset(shared, feature):
  def arguments(folder):
    target = folder / 'data' / 'x' / '1.0.0'
    target.mkdir(parents=True)
    (target / 'features.json').write_text(
      json.dumps({'featuresDict': {'features': {'text': feature}}} | feature)
    )
    (target / 'dataset_info.json').write_text(
      json.dumps({'name': 'x', 'version': '1.0.0', 'splits': []})
    )
    return [
      *shared.train(folder / 'run'),
      '--config.data.source=tfds:x',
      f'--config.data.data_dir={folder / "data"}',
    ]

  return arguments


def _files(shared):
  """Yields (name, write(folder) -> path, what is expected)."""
  for name, content in _zips(shared):
    yield name, _writer('x.zip', content), 'refusal'
  for name, content in _tars(shared):
    yield name, _writer('cifar-10-python.tar.gz', content), 'refusal'
  for name, content in (
    ('a parquet of rubbish', b'PAR1' + os.urandom(200) + b'PAR1'),
    ('a parquet of its magic only', b'PAR1PAR1'),
    ('a parquet cut short', b'PAR1' + bytes(100)),
    ('a parquet with a footer of 4 GB', b'PAR1' + b'\xff' * 4 + b'PAR1'),
  ):
    yield name, _writer('x.parquet', content), 'refusal'
  row = b'{"text": "a"}\n'
  for name, content, expects in (
    ('JSON lines nested deep', DEEP.encode() + b'\n', 'refusal'),
    ('JSON lines that are deep in a row', row * 9 + DEEP.encode(), 'refusal'),
    ('JSON lines with NaN', row * 9 + b'{"text": NaN}\n', 'refusal'),
    ('JSON lines in UTF-16', 'a'.encode('utf-16') * 9, 'refusal'),
    ('JSON lines that are numbers', b'3\n' * 9, 'refusal'),
    ('JSON lines with other keys', row * 9 + b'{"x": 1}\n', 'refusal'),
    (
      'JSON lines with a lone surrogate',
      row * 9 + b'{"text":"\\ud800"}\n',
      'refusal',
    ),
    ('JSON lines cut short', row * 9 + b'{"text": "a', 'refusal'),
    (
      'JSON lines with a row of 30 MB',
      row * 9 + b'{"text": "' + b'a' * 30_000_000 + b'"}\n',
      'either',
    ),
    ('JSON lines of empty rows', b'\n' * 100, 'refusal'),
  ):
    yield name, _writer('x.jsonl', content), expects
  for name, content in (
    ('a CSV with NULs', b'text\n' + b'\0,\0\n' * 9),
    ('a CSV with a field of 30 MB', b'text\n' + b'a' * 30_000_000 + b'\n'),
    ('a CSV without an end of its quotes', b'text\n"abc\n' * 9),
    ('a CSV with rows of other lengths', b'text,b\n1\n1,2,3\n'),
    ('a CSV of a header only', b'text\n'),
    ('a CSV that is no UTF-8', b'text\n\xff\xfe\n' * 9),
  ):
    yield name, _writer('x.csv', content), 'either'
  yield 'a folder that holds itself', loop, 'refusal'
  yield 'a pipe that nobody writes', pipe, 'refusal'
  yield 'a name of many dots', _writer('..jsonl', b'x'), 'refusal'


def _writer(name, content) -> Callable[[pathlib.Path], pathlib.Path]:
  def write(folder):
    path = folder / name
    path.write_bytes(content() if callable(content) else content)
    return path

  return write


def loop(folder: pathlib.Path) -> pathlib.Path:
  """Makes a folder that holds itself."""
  (folder / 'loop').mkdir()
  (folder / 'loop' / 'again').symlink_to(folder / 'loop')
  return folder / 'loop'


def pipe(folder: pathlib.Path) -> pathlib.Path:
  """Makes a pipe with the name of JSON lines, which nobody writes."""
  (folder / 'pipes').mkdir()
  os.mkfifo(folder / 'pipes' / 'x.jsonl')
  return folder / 'pipes' / 'x.jsonl'


def _zip(members, **options):
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', **options) as archive:
    for name, content in members.items():
      archive.writestr(name, content)
  return file.getvalue()


def _png(width, height, rows=1):
  """A PNG whose header has that size, and that holds less."""

  def chunk(kind, content):
    body = kind + content
    return (
      struct.pack('>I', len(content))
      + body
      + struct.pack('>I', zlib.crc32(body))
    )

  header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
  pixels = zlib.compress(bytes((3 * min(width, 64) + 1) * rows))
  return (
    b'\x89PNG\r\n\x1a\n'
    + chunk(b'IHDR', header)
    + chunk(b'IDAT', pixels)
    + chunk(b'IEND', b'')
  )


def _small_zip():
  return _zip({f'cat/{n}.png': _png(4, 4, 4) for n in range(4)})


def encrypted_zip() -> bytes:
  """Returns a zip of images whose members say that they are encrypted."""
  return _with_flags(_small_zip(), 1)


def _zips(shared):
  whole = _small_zip()
  yield 'a zip of rubbish', b'PK\x03\x04' + bytes(100)
  yield 'an empty zip', _zip({})
  yield 'a zip cut short', whole[: len(whole) // 2]
  yield 'an encrypted zip', encrypted_zip()
  yield 'a zip of an unknown method', _with_method(whole, 99)
  yield 'a zip with names outside', _zip({'../../cat/x.png': b'x'})
  yield 'a zip with an absolute name', _zip({f'{shared.canary}': b'x'})
  yield (
    'a zip with an image of 65,535 x 65,535 pixels',
    _zip(
      {f'cat/{n}.png': _png(65535, 65535) for n in range(4)}
      | {f'dog/{n}.png': _png(65535, 65535) for n in range(4)}
    ),
  )
  yield 'a zip with a member of 8 GB of zeros', _bomb
  yield (
    'a zip with images of rubbish',
    _zip({'cat/x.png': b'x', 'dog/y.png': b'y'}),
  )
  yield 'a zip without images', _zip({'cat/x.txt': b'x'})
  yield 'a zip with wrong checksums', _damaged(whole)


def _bomb():
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
    for name in ('cat/1.png', 'dog/1.png'):
      with archive.open(name, 'w', force_zip64=True) as member:
        for _ in range(256):
          member.write(bytes(2**24))
  return file.getvalue()


def _with_flags(content, flag):
  content = bytearray(content)
  for magic, at in ((b'PK\x03\x04', 6), (b'PK\x01\x02', 8)):
    start = -1
    while (start := content.find(magic, start + 1)) >= 0:
      content[start + at] |= flag
  return bytes(content)


def _with_method(content, method):
  content = bytearray(content)
  for magic, at in ((b'PK\x03\x04', 8), (b'PK\x01\x02', 10)):
    start = -1
    while (start := content.find(magic, start + 1)) >= 0:
      content[start + at : start + at + 2] = struct.pack('<H', method)
  return bytes(content)


def _damaged(content):
  content = bytearray(content)
  for at in range(40, 400, 7):
    content[at] ^= 0x55
  return bytes(content)


def _tars(shared):
  names = [f'data_batch_{n}' for n in range(1, 6)] + ['test_batch']

  def tar(add):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w:gz') as archive:
      for name in names:
        add(archive, f'cifar-10-batches-py/{name}')
    return file.getvalue()

  def with_content(content):
    def add(archive, name):
      member = tarfile.TarInfo(name)
      member.size = len(content)
      archive.addfile(member, io.BytesIO(content))

    return tar(add)

  def link(archive, name):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, '/etc/passwd'
    archive.addfile(member)

  def device(archive, name):
    member = tarfile.TarInfo(name)
    member.type, member.devmajor, member.devminor = tarfile.CHRTYPE, 1, 5
    archive.addfile(member)

  yield (
    'CIFAR whose pickles run code',
    with_content(pickle.dumps(_Evil(shared.canary))),
  )
  yield (
    'CIFAR of protocol 0 that runs code',
    with_content(pickle.dumps(_Evil(shared.canary), protocol=0)),
  )
  yield 'CIFAR of pickled numbers', with_content(pickle.dumps(3))
  yield 'CIFAR of rubbish', with_content(b'rubbish')
  yield (
    'CIFAR with a pickle that asks for 4 GB',
    with_content(b'\x80\x04\x8e' + struct.pack('<Q', 2**32) + b'x'),
  )
  yield 'CIFAR of links', tar(link)
  yield 'CIFAR of devices', tar(device)
  yield 'a tarball of rubbish', b'\x1f\x8b' + bytes(50)
  yield 'a tarball cut short', with_content(pickle.dumps([0] * 999))[:200]


def _texts():
  """Yields (name, write(folder) -> flags of launch.train)."""

  def text(content):
    def write(folder):
      (folder / 'theirs').mkdir()
      for n in range(12):
        (folder / 'theirs' / f'{n}.txt').write_bytes(content)
      return [f'--config.data.path={folder}/theirs/*.txt']

    return write

  def links(folder):
    (folder / 'theirs').mkdir()
    (folder / 'theirs' / 'a.txt').write_text('the state ' * 40)
    (folder / 'theirs' / 'again').symlink_to(folder / 'theirs')
    return [f'--config.data.path={folder}/theirs/**/*.txt']

  def pipe(folder):
    (folder / 'theirs').mkdir()
    os.mkfifo(folder / 'theirs' / 'a.txt')
    return [f'--config.data.path={folder}/theirs/*.txt']

  def jsonl(content):
    def write(folder):
      (folder / 'a.jsonl').write_bytes(content)
      return [
        '--config.data.source=jsonl',
        f'--config.data.path={folder}/a.jsonl',
      ]

    return write

  yield 'empty files', text(b'')
  yield 'files of one byte', text(b'a')
  yield 'files of NULs', text(bytes(500))
  yield 'files that are no UTF-8', text(b'\xff\xfe\xfd' * 100)
  yield 'files of lone surrogates', text(b'\xed\xa0\x80' * 100)
  yield 'files of one character', text('😀'.encode() * 100)
  yield 'files with a byte order mark', text(b'\xef\xbb\xbf' + b'abc ' * 50)
  yield 'a folder that holds itself', links
  yield 'a pipe that nobody writes', pipe
  yield 'JSON lines nested deep', jsonl(DEEP.encode())
  yield 'JSON lines of numbers', jsonl(b'3\n' * 50)
  yield 'JSON lines of NaN', jsonl(b'{"text": NaN}\n' * 50)
  yield 'JSON lines of lone surrogates', jsonl(b'{"text": "\\ud800"}\n' * 50)
  yield 'JSON lines of texts in lists', jsonl(b'{"text": ["a"]}\n' * 50)
  yield 'JSON lines cut short', jsonl(b'{"text": "abc"}\n' * 50 + b'{"te')


def models(shared: base.Base) -> Iterator[commands.Attempt]:
  """Converts hostile files of models."""
  for name, suffix, content in _model_files(shared):
    for form in ('safetensors', 'gpt2', 'torch_simple_rnn'):
      yield commands.Attempt(
        f'convert --format={form}: {name}',
        'convert',
        _converted(form, suffix, content),
        finding=6,
      )


def _converted(form, suffix, content):
  def arguments(folder):
    if form == 'gpt2':
      path = folder / 'gpt2'
      path.mkdir()
      (path / f'model{suffix}').write_bytes(content)
      (path / 'pytorch_model.bin').write_bytes(content)
      (path / 'config.json').write_text('{"model_type": "gpt2"}')
      (path / 'vocab.json').write_text('{}')
      (path / 'merges.txt').write_text('')
    else:
      path = folder / f'x{suffix}'
      path.write_bytes(content)
    return [
      f'--input={path}',
      f'--format={form}',
      f'--workdir={folder / "run"}',
    ]

  return arguments


def _model_files(shared):
  def safe(header, body=b''):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + body

  tensor = {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}
  for name, content in (
    ('nothing', b''),
    ('a header of 2^60 bytes', struct.pack('<Q', 2**60) + b'{}'),
    ('a header that is deep', safe(DEEP.encode())),
    ('a tensor outside', safe({'a': tensor | {'data_offsets': [0, 2**50]}})),
    ('an overlap', safe({'a': tensor, 'b': tensor}, bytes(8))),
    ('a negative shape', safe({'a': tensor | {'shape': [-2]}}, bytes(8))),
    ('a huge shape', safe({'a': tensor | {'shape': [2**62]}}, bytes(8))),
    ('an unknown dtype', safe({'a': tensor | {'dtype': 'X'}}, bytes(8))),
    ('no metadata', safe({'a': tensor}, bytes(8))),
    ('metadata of numbers', safe({'__metadata__': {'format': 3}})),
    (
      'a config that names a module',
      safe(
        {
          '__metadata__': {
            'format': 'rnn_jax',
            'config': json.dumps(
              {'model': {}, 'train': {}, 'task': {'name': 'theirs.payload'}}
            ),
            'tokenizer': '{"kind": "bytes"}',
          }
        }
      ),
    ),
    (
      'a config that is deep',
      safe(
        {
          '__metadata__': {
            'format': 'rnn_jax',
            'config': DEEP,
            'tokenizer': '{"kind": "bytes"}',
          }
        }
      ),
    ),
  ):
    yield f'safetensors with {name}', '.safetensors', content
  for name, content in (
    ('runs code', pickle.dumps(_Evil(shared.canary))),
    ('runs code, protocol 0', pickle.dumps(_Evil(shared.canary), protocol=0)),
    ('is rubbish', b'rubbish' * 20),
    ('is empty', b''),
    ('is a zip of rubbish', _zip({'archive/data.pkl': b'rubbish'})),
    (
      'is a zip that runs code',
      _zip({'archive/data.pkl': pickle.dumps(_Evil(shared.canary))}),
    ),
  ):
    yield f'a .pt that {name}', '.pt', content
