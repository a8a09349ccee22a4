"""Bodies, paths and bytes that a stranger sends to a server; see clients.py."""

import random
from typing import Any

NESTED = 40
JUNK: tuple[Any, ...] = (
  None, True, False, 0, -1, 1, 2.5, 1e308, -1e308, 10**30, -(10**30), '', 'a',
  '\x00', '\ud800', '￿' * 20, '٣', '💥', 'x' * 5000, [], [[]],
  [None], {}, [1, 'a'],
  {'a': {'b': []}}, 'state-' + '0' * 32, '../../etc/passwd', 'AAAA', "' or 1=1",
  float('nan'), float('inf'), [256, 256], [0] * 3000, '[' * NESTED, '(' * 99,
  '(a{0,99}){0,99}', '(a|a)*b', {'$ref': '#'}, {'type': 'object'},
  {'enum': []}, {'type': 'string', 'pattern': '('}, {'minLength': 10**9},
  2**32, 2**63, -(2**63), [''], {'type': 'json_schema'}, ['a'] * 200,
  [{'role': 'user'}], [{'role': 'tool', 'content': 'a'}],
)  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
  '/v1/completions': {
    'prompt': 'the gate', 'max_tokens': 4, 'n': 1, 'stream': False, 'seed': 1,
    'stop': ['e'], 'logprobs': 1, 'temperature': 1, 'top_p': 1, 'top_k': 0,
    'min_p': 0, 'repetition_penalty': 1, 'presence_penalty': 0, 'echo': False,
    'frequency_penalty': 0, 'logit_bias': {'3': 1}, 'min_tokens': 0,
    'response_format': {'type': 'text'}, 'state': None, 'return_state': None,
    'guided_json': None, 'guided_regex': None, 'ignore_eos': False,
    'continues': False, 'model': 'tiny', 'user': 'a', 'best_of': 1,
    'stream_options': None, 'suffix': None, 'tools': None,
  },
  '/v1/chat/completions': {
    'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 3,
    'logprobs': True, 'top_logprobs': 1, 'state': None,
    'max_completion_tokens': None,
  },
  '/v1/embeddings': {'input': 'a', 'encoding_format': 'float'},
  '/v1/score': {'input': ['a\nb'], 'tokens': True, 'top_k': 1},
  '/v1/classify': {'input': 'a'},
  '/v1/states': {'prompt': 'a', 'form': 'bytes', 'completion': None},
  '/admin/reload': {'checkpoint': 'best'},
}  # fmt: skip
PATHS = (
  '/', '/page/app.js', '/page/../http/app.py', '/page/%2e%2e/http/app.py',
  '/page//etc/passwd', '/v1/models/x', '/v1/states/../x', '/v1/states/%00',
  '/metrics?a=b', '/' + 'a' * 5000, '/%ff%fe', '/v1/completions', '/readyz',
)  # fmt: skip
METHODS = 'GET', 'POST', 'DELETE', 'PUT', 'HEAD', 'OPTIONS', 'PATCH', 'X'
BYTES = (
  b'\r\n\r\n',
  b'GET\r\n\r\n',
  b'GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n',
  b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' + bytes(40),
  b'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: '
  b'application/json\r\nContent-Length: -5\r\n\r\n{}',
  b'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: '
  b'application/json\r\nContent-Length: 10\r\nContent-Length: 11\r\n\r\n{}',
  b'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: '
  b'application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n',
  b'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ' + b'a' * 200_000 + b'\r\n\r\n',
  b'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
  b'GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n',
  b'GET /\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
  b'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: \xff\xfe\r\n\r\n',
)
CUT = (
  b'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: '
  b'application/json\r\nContent-Length: 500\r\n\r\n{"prompt": "a'
)


def change(rng: random.Random, form: dict[str, Any]) -> dict[str, Any]:
  """Returns a form with some of its fields changed, removed or added."""
  form = dict(form)
  for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
    name = rng.choice([*form] or ['prompt'])
    match rng.randrange(5):
      case 0:
        form.pop(name, None)
      case 1:
        form[rng.choice(('x', '', 'Prompt', '__class__', 'a' * 999))] = 1
      case 2:
        form[name] = [rng.choice(JUNK), form.get(name)]
      case _:
        form[name] = rng.choice(JUNK)
  return form
