"""GGUF files written byte by byte, so that anything can be wrong in them."""

import struct

TYPES = {
  'u32': (4, '<I'),
  'f32': (6, '<f'),
  'bool': (7, '<?'),
  'u64': (10, '<Q'),
}
F32 = 0
ALIGNMENT = 32


def text(value):
  """A string as it is stored."""
  content = value if isinstance(value, bytes) else value.encode()
  return struct.pack('<Q', len(content)) + content


def value(kind, x):
  """A value with its type; of 'array' x is (type, count, bytes)."""
  if kind == 'text':
    return struct.pack('<I', 8) + text(x)
  if kind == 'array':
    inner, count, content = x
    return struct.pack('<IIQ', 9, inner, count) + content
  number, form = TYPES[kind]
  return struct.pack('<I', number) + struct.pack(form, x)


def tensor(name, sizes, kind=F32, offset=0):
  """The record of a tensor; `sizes` are the fastest first."""
  return (
    text(name)
    + struct.pack('<I', len(sizes))
    + b''.join(struct.pack('<Q', x) for x in sizes)
    + struct.pack('<IQ', kind, offset)
  )


def file(values=(), tensors=(), data=b'', **changed):
  """A file.

  `values` are (key, kind, value), `tensors` records; `magic`, `version`,
  `tensor_count` and `value_count` may be others than theirs, and the rest left
  `open`.
  """
  magic = changed.get('magic', b'GGUF')
  header = struct.pack(
    '<IQQ',
    changed.get('version', 3),
    changed.get('tensor_count', len(tensors)),
    changed.get('value_count', len(values)),
  )
  records = b''.join(text(key) + value(kind, x) for key, kind, x in values)
  content = magic + header + records + b''.join(tensors)
  if changed.get('open'):
    return content  # to which more is added
  return content + bytes(-len(content) % ALIGNMENT) + data


NAMED = (('general.architecture', 'text', 'llama'),)
ONE = tensor('a', [8])
DATA = bytes(32)


def _with(*values):
  return file((*NAMED, *values), [ONE], DATA)


def _of(*tensors, data=DATA):
  return file(NAMED, tensors, data)


WRONG = {  # name: (content, what the line says)
  'nothing': (b'', 'begin with GGUF'),
  'other bytes': (b'rubbish' * 20, 'begin with GGUF'),
  'only its name': (b'GGUF', '4 bytes are expected at 4 of 4'),
  'version 1': (file(version=1), 'version 1'),
  'of another byte order': (file(version=3 << 24), 'version 50331648'),
  '2^63 values': (file(value_count=2**63), '9,223,372,036,854,775,808 values'),
  '2^63 tensors': (file(tensor_count=2**63), 'tensors in'),
  'more values than there are': (
    file(NAMED, value_count=9),
    '9 values in',
  ),
  'a key of 2^63 bytes': (
    file(value_count=1, open=True) + struct.pack('<Q', 2**63) + bytes(64),
    'a text of 9,223',
  ),
  'a key past the end': (
    file(value_count=1, open=True) + struct.pack('<Q', 60000) + bytes(64),
    '60,000 bytes are expected',
  ),
  'a key twice': (_with(*NAMED), "'general.architecture' twice"),
  'a key that is no UTF-8': (_with((b'\xff\xfe', 'u32', 1)), 'utf-8'),
  'a text of 2^62 bytes': (
    file(NAMED, value_count=2, open=True)
    + text('a')
    + struct.pack('<IQ', 8, 2**62)
    + bytes(64),
    'a text of 4,611',
  ),
  'an array of 2^61 numbers': (
    _with(('a', 'array', (4, 2**61, b''))),
    "items of 'a' in",
  ),
  'an array of 2^60 texts': (
    _with(('a', 'array', (8, 2**60, b''))),
    "texts of 'a' in",
  ),
  'an array of arrays': (
    _with(('a', 'array', (9, 1, struct.pack('<IQ', 9, 1)))),
    'unknown type 9',
  ),
  'a value of an unknown type': (
    file(NAMED, value_count=2, open=True)
    + text('a')
    + struct.pack('<I', 77)
    + bytes(64),
    'unknown type 77',
  ),
  'an alignment of 0': (
    _with(('general.alignment', 'u32', 0)),
    'general.alignment=0',
  ),
  'an alignment of 3': (
    _with(('general.alignment', 'u32', 3)),
    'general.alignment=3',
  ),
  'an alignment of 2^31': (
    _with(('general.alignment', 'u32', 2**31)),
    'general.alignment=2147483648',
  ),
  'an alignment of text': (
    _with(('general.alignment', 'text', '32')),
    "general.alignment='32'",
  ),
  'a tensor without dimensions': (_of(tensor('a', [])), '0 dimensions'),
  'a tensor of many dimensions': (_of(tensor('a', [1] * 9)), '9 dimensions'),
  'a dimension of 0': (_of(tensor('a', [0])), r'the shape \(0,\)'),
  'a dimension of -1': (_of(tensor('a', [2**64 - 1])), 'the shape'),
  'dimensions of 2^32 each': (_of(tensor('a', [2**32] * 4)), 'has bytes 0 to'),
  'a type that nobody knows': (_of(tensor('a', [8], 999)), 'is of type 999'),
  'a type of whole numbers': (_of(tensor('a', [8], 26)), 'is of type I32'),
  'rows that are no blocks': (_of(tensor('a', [8], 8)), 'of type Q8_0 has'),
  'an offset of 2^63': (_of(tensor('a', [8], 0, 2**63)), 'has bytes 9,223'),
  'an offset between two units': (_of(tensor('a', [8], 0, 4)), 'aligned to 32'),
  'a tensor past the end': (_of(tensor('a', [800])), 'has bytes 0 to 3,200'),
  'tensors that overlap': (
    _of(tensor('a', [16]), tensor('b', [8], 0, 32), data=bytes(64)),
    'a and b overlap',
  ),
  'a tensor twice': (_of(ONE, tensor('a', [8], 0, 32)), 'tensor a twice'),
  'a name of 2^20 bytes': (
    _of(tensor('a' * 2**20, [8])),
    'a text of 1,048,576 bytes',
  ),
}
