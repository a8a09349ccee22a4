"""GGUF files that a stranger wrote: headers, values, tensors, vocabularies.

A file of tests/support/gguf_files.py is a header with one thing wrong; of a
whole small model each value is one of another type or size, or the file is cut
or has a bit flipped.
"""

import functools
import struct
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands
from tests.support import gguf_files

ENTRIES, WIDTH, INNER, STATE, HEADS = 16, 8, 16, 4, 2
CHANNELS = INNER + 2 * STATE
SIZES = {
  'block_count': 1,
  'context_length': 64,
  'embedding_length': WIDTH,
  'feed_forward_length': 0,
  'attention.head_count': 0,
  'vocab_size': ENTRIES,
  'ssm.conv_kernel': 4,
  'ssm.inner_size': INNER,
  'ssm.state_size': STATE,
  'ssm.time_step_rank': HEADS,
  'ssm.group_count': 1,
}
TENSORS = {  # of Mamba-2, the fastest axis first
  'token_embd.weight': (WIDTH, ENTRIES),
  'output_norm.weight': (WIDTH,),
  'output.weight': (WIDTH, ENTRIES),
  'blk.0.attn_norm.weight': (WIDTH,),
  'blk.0.ssm_in.weight': (WIDTH, INNER + CHANNELS + HEADS),
  'blk.0.ssm_conv1d.weight': (4, CHANNELS),
  'blk.0.ssm_conv1d.bias': (CHANNELS,),
  'blk.0.ssm_dt.bias': (HEADS,),
  'blk.0.ssm_a': (1, HEADS),
  'blk.0.ssm_d': (1, HEADS),
  'blk.0.ssm_norm.weight': (INNER,),
  'blk.0.ssm_out.weight': (INNER, WIDTH),
}
HOSTILE = (  # of any value
  ('u32', 2**32 - 1),
  ('u64', 2**63),
  ('f32', float('nan')),
  ('text', 'x' * 1000),
  ('bool', True),
  ('array', (4, 3, bytes(12))),
  ('array', (8, 1, gguf_files.text('x'))),
)
TOKENS = ('array', (8, 2, gguf_files.text('a') * 2))
VOCABULARIES = {
  'tokens that are the same': (('tokens', *TOKENS),),
  'tokens without merges': (
    ('tokens', 'array', (8, 1, gguf_files.text('a'))),
    ('pre', 'text', 'gpt-2'),
  ),
  'tokens that are no UTF-8': (
    ('tokens', 'array', (8, 1, gguf_files.text(b'\xff'))),
  ),
  'a way of splitting': (
    ('tokens', 'array', (8, 1, gguf_files.text('a'))),
    ('pre', 'text', '(a+)+$'),
  ),
}


@functools.cache
def whole() -> bytes:
  """A file that can be converted."""
  return _model()


def _model(changed=(), added=(), names=tuple(TENSORS)):
  values = [('general.architecture', 'text', 'mamba2')]
  values += [(f'mamba2.{name}', 'u32', x) for name, x in SIZES.items()]
  values.append(('mamba2.attention.layer_norm_rms_epsilon', 'f32', 1e-5))
  by_key = {key: (kind, x) for key, kind, x in values} | dict(changed)
  records, data = [], b''
  for name in names:
    sizes, count = TENSORS[name], 1
    for size in sizes:
      count *= size
    records.append(gguf_files.tensor(name, sizes, offset=len(data)))
    content = struct.pack('<f', -0.5) * count
    data += content + bytes(-len(content) % gguf_files.ALIGNMENT)
  return gguf_files.file(
    [*((key, *x) for key, x in by_key.items()), *added], records, data
  )


def files(shared: base.Base) -> Iterator[commands.Attempt]:
  """Converts hostile files."""
  del shared
  yield _attempt('a whole one', whole(), 'success')
  for name, (content, _) in gguf_files.WRONG.items():
    yield _attempt(name, content)
  keys = ['general.architecture', *(f'mamba2.{name}' for name in SIZES)]
  for key in (*keys, 'mamba2.attention.layer_norm_rms_epsilon'):
    for kind, x in HOSTILE:
      content = _model({key: (kind, x)})
      shown = str(x)[:20]
      yield _attempt(f'{key}: {kind} {shown}', content, 'either')
  for name, values in VOCABULARIES.items():
    added = [('tokenizer.ggml.model', 'text', 'gpt2')]
    added += [(f'tokenizer.ggml.{key}', *x) for key, *x in values]
    yield _attempt(name, _model(added=added))
  for part in range(1, 16):
    yield _attempt(f'cut at {part}/16', whole()[: len(whole()) * part // 16])
  for part in range(40):
    content = bytearray(whole())
    content[len(content) * part // 80] ^= 0x10  # of the header, mostly
    yield _attempt(f'a bit at {part}/80', bytes(content), 'either')

  yield from _in_parts()


def _in_parts():
  """Yields models of which a part isn't what its name says."""
  parts = [_model(_split(0, 2)), _model(_split(1, 2))]
  cut = parts[1][: len(parts[1]) // 2]
  names = [*TENSORS]
  halves = [names[:5], names[5:]]
  for total, expects in ((len(names), 'success'), (99, 'refusal')):
    first, second = (
      _model(_split(n, 2, total), names=own) for n, own in enumerate(halves)
    )
    name = f'two parts that have {total} tensors'
    yield _attempt(name, first, expects, [second])
  for name, others in (
    ('a part that is missing', []),
    ('the same tensors in two parts', [parts[1]]),
    ('a part in the place of another', [parts[0]]),
    ('a part that is cut', [cut]),
    ('a part of nothing', [b'']),
  ):
    yield _attempt(name, parts[0], others=others)
  for count in (2**31, 10**5, 3):
    content = _model(_split(0, count))
    yield _attempt(f'1 of {count} parts', content, others=parts[1:])


def _split(n, count, tensors=None):
  own = {'split.no': ('u32', n), 'split.count': ('u32', count)}
  if tensors is None:
    return own
  return own | {'split.tensors.count': ('u32', tensors)}


def _attempt(name, content, expects='refusal', others=None):
  def arguments(folder):
    path = folder / 'x.gguf'
    if others is not None:
      path = folder / 'x-00001-of-00002.gguf'
      for n, other in enumerate(others, 2):
        (folder / f'x-{n:05}-of-00002.gguf').write_bytes(other)
    path.write_bytes(content)
    return base.convert(folder, path, 'gguf')

  return commands.Attempt(
    f'convert --format=gguf: {name}', 'convert', arguments, expects=expects
  )
