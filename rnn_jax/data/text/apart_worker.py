"""Runs a stranger's program within limits: python apart_worker.py (apart.py).

Frames on stdin and stdout are 8 bytes of length and an object of JSON. The
first has the program, {"kind": "tokenizer" or "template", "text": ...}, others
are requests to it; each says how many "seconds" of processor time it may take.
A failure is answered with {"error": ...}. It imports nothing of rnn_jax, to
start quickly.
"""

import datetime
import json
import os
import resource
import struct
import sys
import time
from typing import IO
from typing import Any

MEMORY = {'tokenizer': 2 * 2**30, 'template': 2**29}  # bytes


def read(stream: IO[bytes]) -> bytes:
  """Returns the next frame, b'' at the end."""
  size = stream.read(8)
  return stream.read(struct.unpack('<Q', size)[0]) if len(size) == 8 else b''


def write(stream: IO[bytes], content: bytes) -> None:
  """Writes a frame."""
  stream.write(struct.pack('<Q', len(content)) + content)
  stream.flush()


def tokenizer(text: str) -> Any:
  """Returns (what a tokenizer.json has, what answers requests to it)."""
  import tokenizers

  _limit('tokenizer')
  made = [tokenizers.Tokenizer.from_str(text) for _ in range(2)]
  for each in made:
    each.no_truncation()
    each.no_padding()
  made[0].encode_special_tokens = True

  def encode(texts, special):
    encodings = made[special].encode_batch_fast(texts, add_special_tokens=False)
    return {'ids': [each.ids for each in encodings]}

  return {'vocabulary': made[1].get_vocab(with_added_tokens=True)}, encode


def template(text: str) -> Any:
  """Returns the same of a chat template.

  It may rely on what package transformers documents.
  """
  import jinja2.ext
  import jinja2.sandbox
  from jinja2 import meta
  from jinja2 import nodes

  class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %} stands for what is in it."""

    tags = {'generation'}  # noqa: RUF012, Jinja's own form

    def parse(self, parser):
      line = next(parser.stream).lineno
      body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
      return nodes.Scope(body, lineno=line)

  def raise_exception(message):
    raise jinja2.TemplateError(message)

  _limit('template')
  environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[Generation, jinja2.ext.loopcontrols],
  )
  environment.filters['tojson'] = _to_json
  environment.globals |= {
    'raise_exception': raise_exception,
    'strftime_now': lambda form: datetime.datetime.now().strftime(form),
  }
  names = meta.find_undeclared_variables(environment.parse(text))
  program = environment.from_string(text)

  def render(messages, reply, tokens):
    text = program.render(
      messages=messages,
      add_generation_prompt=reply,
      tools=None,
      documents=None,
      **tokens,
    )
    return {'text': text}

  return {'names': sorted(names)}, render


def main() -> None:
  """Answers until stdin ends."""
  os.environ |= {'TOKENIZERS_PARALLELISM': 'false', 'RUST_BACKTRACE': '0'}
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  source, target = sys.stdin.buffer, sys.stdout.buffer
  kinds = {'tokenizer': tokenizer, 'template': template}
  respond = None
  while content := read(source):
    try:
      request = json.loads(content)
      end = int(time.process_time()) + 1 + request.pop('seconds')
      resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
      if respond is None:
        answer, respond = kinds[request['kind']](request['text'])
      else:
        answer = respond(**request)
      content = json.dumps(answer).encode()
    except BaseException as error:  # a panic of Rust isn't an Exception
      content = json.dumps(_failure(error)).encode()
    write(target, content)


def _limit(kind):
  resource.setrlimit(resource.RLIMIT_AS, (MEMORY[kind], MEMORY[kind]))


def _failure(error):
  """Returns what is answered about an error of a program."""
  words = str(error) or type(error).__name__
  if isinstance(error, RecursionError):
    words = 'it is nested, or calls itself, too deep'
  if isinstance(error, MemoryError):
    words = 'it takes too much memory'
  exceeds = isinstance(error, (RecursionError, MemoryError))
  return {'error': words, 'exceeds': exceeds, 'line': _line(error)}


def _line(error):
  """Returns the line of a template that an error is from, 0: not known."""
  line, at = getattr(error, 'lineno', None) or 0, error.__traceback__
  while at is not None:
    if at.tb_frame.f_code.co_filename == '<template>':
      line = at.tb_lineno
    at = at.tb_next
  return line


def _to_json(
  value, ensure_ascii=False, indent=None, separators=None, sort_keys=False
):
  return json.dumps(
    value,
    ensure_ascii=ensure_ascii,
    indent=indent,
    separators=separators,
    sort_keys=sort_keys,
  )


if __name__ == '__main__':
  main()
