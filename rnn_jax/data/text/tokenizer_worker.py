"""Applies a tokenizer.json in a process of its own: python tokenizer_worker.py

It reads frames from stdin, 8 bytes of length and the content: first the
tokenizer.json, then requests as JSON, {"texts": [...], "special": true}. It
answers with {"vocabulary": {...}}, then with {"counts": [...]} and a frame of
the ids, int32; or with {"error": "..."}. Its memory is limited, so that what
its rules make of a text ends this process and no other. It imports nothing of
rnn_jax, to start quickly.
"""

import json
import os
import resource
import struct
import sys
from typing import IO

MEMORY = 2 * 2**30  # bytes


def read(stream: IO[bytes]) -> bytes:
  """Returns the next frame, b'' at the end."""
  size = stream.read(8)
  return stream.read(struct.unpack('<Q', size)[0]) if size else b''


def write(stream: IO[bytes], content: bytes) -> None:
  """Writes a frame."""
  stream.write(struct.pack('<Q', len(content)) + content)
  stream.flush()


def main() -> None:
  """Answers until stdin ends."""
  os.environ |= {'TOKENIZERS_PARALLELISM': 'false', 'RUST_BACKTRACE': '0'}
  import numpy as np  # noqa: PLC0415, after the variables
  import tokenizers

  resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
  source, target = sys.stdin.buffer, sys.stdout.buffer

  def answer(**values):
    write(target, json.dumps(values).encode())

  try:
    text = read(source).decode()
    made = [tokenizers.Tokenizer.from_str(text) for _ in range(2)]
    for each in made:
      each.no_truncation()
      each.no_padding()
    made[0].encode_special_tokens = True
    answer(vocabulary=made[1].get_vocab(with_added_tokens=True))
  except BaseException as error:  # a panic of Rust isn't an Exception
    answer(error=str(error))
    return
  while content := read(source):
    request = json.loads(content)
    try:
      encodings = made[request['special']].encode_batch_fast(
        request['texts'], add_special_tokens=False
      )
      ids = [np.array(each.ids, '<i4') for each in encodings]
      answer(counts=[len(x) for x in ids])
      write(target, b''.join(x.tobytes() for x in ids))
    except BaseException as error:
      answer(error=str(error))


if __name__ == '__main__':
  main()
