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
from collections.abc import Iterator
from typing import Any

from rnn_jax.config import parts
from tests.faults import base
from tests.faults import commands

LABELS = 'cat', 'dog'
CIFAR = 'cifar-10-python.tar.gz'
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
  generate = 'generate', '--prompt=the', '--max_new_tokens=2'
  for file, texts, launchers in (
    ('config', _configs(shared), (('evaluate',), generate, ('inspect',))),
    ('tokenizer', _tokenizers(), (('evaluate',), generate)),
    ('data', _data(), (('evaluate',),)),
  ):
    for name, text in texts:
      for launcher, *flags in launchers:
        # Data that generation doesn't read may be anything.
        unread = launcher != 'evaluate' and file == 'config'
        yield commands.Attempt(
          f'{launcher}: {file}.json: {name}',
          launcher,
          base.changed(
            shared.run, _written(f'{file}.json', text), base.opened(*flags)
          ),
          expects='either' if unread else 'refusal',
          says=f'{file}|module|choose|tokenizer|key|of type|give|path|fit|'
          'no checkp',
        )
  yield commands.Attempt(
    'train --config=config.json, which is no Python',
    'train',
    [f'--config={shared.run / "config.json"}', '--workdir=/tmp/never'],
    says='Python file',
  )


def _written(name, text):
  return lambda run: (run / name).write_text(text)


def _data():
  yield 'a list', '[]'
  yield 'deep', DEEP
  yield 'NaN', '{"train": NaN}'
  yield 'of other data', '{"train": {}, "validation": {}, "test": {}}'


def _configs(shared):
  whole = shared.config_of_run()

  def changed(section, **values):
    return json.dumps(whole | {section: whole[section] | values})

  _write_payload(shared, 'payloads', 'evil.py')
  yield 'empty', ''
  yield 'a number', '3'
  yield 'a list', '[]'
  yield 'null', 'null'
  yield 'nested 100,000 deep', DEEP
  yield 'NaN', json.dumps(whole | {'x': float('nan')})
  yield 'a model that is a number', json.dumps(whole | {'model': 3})
  yield 'a model that is a list', json.dumps(whole | {'model': [1]})
  yield 'data that are null', json.dumps(whole | {'data': None})
  yield 'an unknown section', json.dumps(whole | {'evil': {}})
  yield 'an unknown key', changed('model', evil=1)
  unversioned = {key: whole[key] for key in whole if key != 'version'}
  yield 'no version', json.dumps(unversioned)
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
    for name, module in (
      ('a module', 'antigravity.evil'),
      ('a module of the standard library', 'this.x'),
    ):
      yield f'{name} as {section}.{key}', changed(section, **{key: module})
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
  characters = '{"kind": "characters", "characters": 3}'
  yield 'characters that are a number', characters
  yield 'BPE without merges', '{"kind": "bpe"}'
  yield 'BPE of rubbish', '{"kind": "bpe", "tokenizer": {"version": "9"}}'
  yield 'numbers without a size', '{"kind": "numbers"}'
  yield 'numbers of 10^12', '{"kind": "numbers", "size": 1000000000000}'


def imports(shared: base.Base) -> Iterator[commands.Attempt]:
  """Starts launchers in a folder where a run's config names a module."""
  _write_payload(shared, 'on_path/theirs', 'payload.py')
  for section, key in (kind.place for kind in parts.KINDS):
    whole = shared.config_of_run()
    whole[section][key] = 'theirs.payload'
    for launcher, *flags in (
      ('evaluate',),
      ('generate', '--prompt=the'),
      ('inspect',),
      ('quantize', '--output=/tmp/never'),
      ('prune', '--output=/tmp/never', '--sparsity=0.5'),
      ('export', '--format=safetensors', '--output=/tmp/never.safetensors'),
    ):
      yield commands.Attempt(
        f'{launcher}: {section}.{key} names a payload on the path',
        launcher,
        base.changed(
          shared.run,
          _written('config.json', json.dumps(whole)),
          base.opened(*flags),
        ),
        says='names a module',
        environment={'PYTHONPATH': str(shared.folder / 'on_path')},
      )


def _write_payload(shared, folder, name):
  path = shared.folder / folder / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(PAYLOAD.format(canary=str(shared.canary)))


def data(shared: base.Base) -> Iterator[commands.Attempt]:
  """Prepares, or trains on, hostile files."""
  for name, write in _files(shared):
    readable = name.startswith('a CSV') or name.endswith('30 MB')
    yield commands.Attempt(
      f'prepare: {name}',
      'prepare',
      lambda folder, write=write: base.prepare(folder, write(folder)),
      expects='either' if readable else 'refusal',
    )
  for name, write in _texts():
    yield commands.Attempt(
      f'train on {name}',
      'train',
      _trained(shared, write),
      expects='either',
    )
  for name, named in (
    ('a class of a module', 'theirs.payload.X'),
    ('a builtin', 'builtins.eval'),
    ('an own class of TFDS', 'os.system'),
  ):
    yield commands.Attempt(
      f'a prepared dataset with {name}',
      'train',
      _trained(shared, _dataset({'pythonClassName': named})),
    )


def _trained(shared, write):
  return lambda folder: [*shared.train(folder / 'run'), *write(folder)]


def _dataset(feature):
  def write(folder):
    target = folder / 'data' / 'x' / '1.0.0'
    target.mkdir(parents=True)
    (target / 'features.json').write_text(
      json.dumps({'featuresDict': {'features': {'text': feature}}} | feature)
    )
    (target / 'dataset_info.json').write_text(
      json.dumps({'name': 'x', 'version': '1.0.0', 'splits': []})
    )
    return [
      '--config.data.source=tfds:x',
      f'--config.data.data_dir={folder / "data"}',
    ]

  return write


def _files(shared):
  """Yields (name, write(folder) -> path)."""
  row = b'{"text": "a"}\n'
  whole, long = row * 9, b'a' * 30_000_000
  for name, file, content in (
    *((name, 'x.zip', content) for name, content in _zips(shared)),
    *((name, CIFAR, content) for name, content in _tars(shared)),
    (
      'a parquet of rubbish',
      'x.parquet',
      b'PAR1' + os.urandom(200) + b'PAR1',
    ),
    ('a parquet of its magic only', 'x.parquet', b'PAR1PAR1'),
    ('a parquet cut short', 'x.parquet', b'PAR1' + bytes(100)),
    (
      'a parquet with a footer of 4 GB',
      'x.parquet',
      b'PAR1' + b'\xff' * 4 + b'PAR1',
    ),
    *(
      (f'JSON lines {name}', 'x.jsonl', content)
      for name, content in (
        ('nested deep', DEEP.encode() + b'\n'),
        ('that are deep in a row', whole + DEEP.encode()),
        ('with NaN', whole + b'{"text": NaN}\n'),
        ('in UTF-16', 'a'.encode('utf-16') * 9),
        ('that are numbers', b'3\n' * 9),
        ('with other keys', whole + b'{"x": 1}\n'),
        ('with a lone surrogate', whole + b'{"text":"\\ud800"}\n'),
        ('cut short', whole + b'{"text": "a'),
        ('with a row of 30 MB', whole + b'{"text": "' + long + b'"}\n'),
        ('of empty rows', b'\n' * 100),
      )
    ),
    *(
      (f'a CSV {name}', 'x.csv', content)
      for name, content in (
        ('with NULs', b'text\n' + b'\0,\0\n' * 9),
        ('with a field of 30 MB', b'text\n' + long + b'\n'),
        ('without an end of its quotes', b'text\n"abc\n' * 9),
        ('with rows of other lengths', b'text,b\n1\n1,2,3\n'),
        ('of a header only', b'text\n'),
        ('that is no UTF-8', b'text\n\xff\xfe\n' * 9),
      )
    ),
    ('a name of many dots', '..jsonl', b'x'),
  ):
    yield name, base.file(file, content)
  yield 'a folder that holds itself', loop
  yield 'a pipe that nobody writes', pipe


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
    length, check = len(content), zlib.crc32(kind + content)
    return struct.pack(f'>I4s{length}sI', length, kind, content, check)

  header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
  pixels = zlib.compress(bytes((3 * min(width, 64) + 1) * rows))
  parts = chunk(b'IHDR', header), chunk(b'IDAT', pixels), chunk(b'IEND', b'')
  return b'\x89PNG\r\n\x1a\n' + b''.join(parts)


def _small_zip():
  return _zip({f'cat/{n}.png': _png(4, 4, 4) for n in range(4)})


def encrypted_zip() -> bytes:
  """Returns a zip of images whose members say that they are encrypted."""
  return _with_header(_small_zip(), b'\1\0', 6, 8)


def _zips(shared):
  whole = _small_zip()
  yield 'a zip of rubbish', b'PK\x03\x04' + bytes(100)
  yield 'an empty zip', _zip({})
  yield 'a zip cut short', whole[: len(whole) // 2]
  yield 'an encrypted zip', encrypted_zip()
  yield 'a zip of an unknown method', _with_header(whole, b'\x63\0', 8, 10)
  yield 'a zip with names outside', _zip({'../../cat/x.png': b'x'})
  yield 'a zip with an absolute name', _zip({f'{shared.canary}': b'x'})
  huge = {f'{x}/{n}.png': _png(65535, 65535) for x in LABELS for n in range(4)}
  yield 'a zip with an image of 65,535 x 65,535 pixels', _zip(huge)
  yield 'a zip with a member of 8 GB of zeros', _bomb
  rubbish = {f'{x}/x.png': b'x' for x in LABELS}
  yield 'a zip with images of rubbish', _zip(rubbish)
  yield 'a zip without images', _zip({'cat/x.txt': b'x'})
  yield 'a zip with wrong checksums', _damaged(whole)


def _bomb():
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
    for label in LABELS:
      with archive.open(f'{label}/1.png', 'w', force_zip64=True) as member:
        for _ in range(256):
          member.write(bytes(2**24))
  return file.getvalue()


def _with_header(content, value, local, central):
  """Returns a zip with the bytes `value` in its headers, at these places."""
  content = bytearray(content)
  for magic, at in ((b'PK\x03\x04', local), (b'PK\x01\x02', central)):
    start = -1
    while (start := content.find(magic, start + 1)) >= 0:
      content[start + at : start + at + 2] = value
  return bytes(content)


def _damaged(content):
  content = bytearray(content)
  for at in range(40, 400, 7):
    content[at] ^= 0x55
  return bytes(content)


def _tars(shared):
  def tar(content=b'', **fields):
    """Members of this content, or with these fields."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w:gz') as archive:
      for name in (*(f'data_batch_{n}' for n in range(1, 6)), 'test_batch'):
        member = tarfile.TarInfo(f'cifar-10-batches-py/{name}')
        member.size = len(content)
        for field, value in fields.items():
          setattr(member, field, value)
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()

  evil = _Evil(shared.canary)
  asks = b'\x80\x04\x8e' + struct.pack('<Q', 2**32) + b'x'
  yield 'CIFAR whose pickles run code', tar(pickle.dumps(evil))
  yield (
    'CIFAR of protocol 0 that runs code',
    tar(pickle.dumps(evil, protocol=0)),
  )
  yield 'CIFAR of pickled numbers', tar(pickle.dumps(3))
  yield 'CIFAR of rubbish', tar(b'rubbish')
  yield 'CIFAR with a pickle that asks for 4 GB', tar(asks)
  yield 'CIFAR of links', tar(type=tarfile.SYMTYPE, linkname='/etc/passwd')
  yield 'CIFAR of devices', tar(type=tarfile.CHRTYPE, devmajor=1, devminor=5)
  yield 'a tarball of rubbish', b'\x1f\x8b' + bytes(50)
  yield 'a tarball cut short', tar(pickle.dumps([0] * 999))[:200]


def _texts():
  """Yields (name, write(folder) -> flags of launch.train)."""

  def texts(content):
    return lambda path: [
      (path / f'{n}.txt').write_bytes(content) for n in range(12)
    ]

  def links(path):
    (path / 'a.txt').write_text('the state ' * 40)
    (path / 'again').symlink_to(path)

  for name, fill, pattern in (
    ('empty files', texts(b''), '*.txt'),
    ('files of one byte', texts(b'a'), '*.txt'),
    ('files of NULs', texts(bytes(500)), '*.txt'),
    ('files that are no UTF-8', texts(b'\xff\xfe\xfd' * 100), '*.txt'),
    ('files of lone surrogates', texts(b'\xed\xa0\x80' * 100), '*.txt'),
    ('files of one character', texts('😀'.encode() * 100), '*.txt'),
    (
      'files with a byte order mark',
      texts(b'\xef\xbb\xbf' + b'abc ' * 50),
      '*.txt',
    ),
    ('a folder that holds itself', links, '**/*.txt'),
    (
      'a pipe that nobody writes',
      lambda path: os.mkfifo(path / 'a.txt'),
      '*.txt',
    ),
  ):

    def write(folder, fill=fill, pattern=pattern):
      (folder / 'theirs').mkdir()
      fill(folder / 'theirs')
      return [f'--config.data.path={folder}/theirs/{pattern}']

    yield name, write
  for name, content in (
    ('nested deep', DEEP.encode()),
    ('of numbers', b'3\n' * 50),
    ('of NaN', b'{"text": NaN}\n' * 50),
    ('of lone surrogates', b'{"text": "\\ud800"}\n' * 50),
    ('of texts in lists', b'{"text": ["a"]}\n' * 50),
    ('cut short', b'{"text": "abc"}\n' * 50 + b'{"te'),
  ):
    yield f'JSON lines {name}', _of_rows(content)


def _of_rows(content):
  write = base.file('a.jsonl', content)
  return lambda folder: [
    '--config.data.source=jsonl',
    f'--config.data.path={write(folder)}',
  ]


def models(shared: base.Base) -> Iterator[commands.Attempt]:
  """Converts hostile files of models."""
  for name, suffix, content in _model_files(shared):
    for form in ('safetensors', 'hf', 'torch_simple_rnn'):
      yield commands.Attempt(
        f'convert --format={form}: {name}',
        'convert',
        _converted(form, suffix, content),
      )


def _converted(form, suffix, content):
  def arguments(folder):
    path = folder / ('gpt2' if form == 'hf' else f'x{suffix}')
    files = {path: content}
    if form == 'hf':
      path.mkdir()
      files = {
        path / f'model{suffix}': content,
        path / 'pytorch_model.bin': content,
        path / 'config.json': b'{"model_type": "gpt2"}',
        path / 'vocab.json': b'{}',
        path / 'merges.txt': b'',
      }
    for file, written in files.items():
      file.write_bytes(written)
    return base.convert(folder, path, form)

  return arguments


def _model_files(shared):
  """Yields (name, end of the file's name, content)."""
  for name, content in _safetensors():
    yield f'safetensors with {name}', '.safetensors', content
  evil = _Evil(shared.canary)
  for name, content in (
    ('runs code', pickle.dumps(evil)),
    ('runs code, protocol 0', pickle.dumps(evil, protocol=0)),
    ('is rubbish', b'rubbish' * 20),
    ('is empty', b''),
    ('is a zip of rubbish', _zip({'archive/data.pkl': b'rubbish'})),
    (
      'is a zip that runs code',
      _zip({'archive/data.pkl': pickle.dumps(evil)}),
    ),
  ):
    yield f'a .pt that {name}', '.pt', content


def _safetensors():
  """Yields (name, content)."""

  def safe(header, body=b''):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + body

  def tensor(**changed):
    whole = {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}
    return {'a': whole | changed}

  def ours(config):
    form = {'format': 'rnn_jax', 'tokenizer': '{"kind": "bytes"}'}
    return safe({'__metadata__': form | {'config': config}})

  module = {'model': {}, 'train': {}, 'task': {'name': 'theirs.payload'}}
  body = bytes(8)
  yield 'nothing', b''
  yield 'a header of 2^60 bytes', struct.pack('<Q', 2**60) + b'{}'
  yield 'a header that is deep', safe(DEEP.encode())
  yield 'a tensor outside', safe(tensor(data_offsets=[0, 2**50]))
  yield 'an overlap', safe(tensor() | {'b': tensor()['a']}, body)
  yield 'a negative shape', safe(tensor(shape=[-2]), body)
  yield 'a huge shape', safe(tensor(shape=[2**62]), body)
  yield 'an unknown dtype', safe(tensor(dtype='X'), body)
  yield 'no metadata', safe(tensor(), body)
  yield 'metadata of numbers', safe({'__metadata__': {'format': 3}})
  yield 'a config that names a module', ours(json.dumps(module))
  yield 'a config that is deep', ours(DEEP)
