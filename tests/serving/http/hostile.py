"""Requests that a server must survive: malformed, oversized, absurd, cut off.

    python -m tests.serving.http.hostile 2000

sends so many to a server of a small model in this process, and prints how many
got which status; test_hostile.py sends fewer.
"""

import collections
import json
import logging
import random
import sys
import tempfile

import httpx2

from benchmarks.workloads.faults import bodies
from tests.serving.http import served

LIMITS = {'new_tokens': 24, 'prompt_tokens': 2000, 'body_bytes': 100_000}
GOOD = {'prompt': 'the gate', 'max_tokens': 5, 'seed': 11}


def send(client, url, rng):
  """Sends one hostile request. Returns its status."""
  kind = rng.random()
  if kind < 0.15:
    return bodies.send_bytes(url, rng.choice((*bodies.BYTES, bodies.CUT)))
  if kind < 0.3:
    headers = {'Host': rng.choice(('127.0.0.1', 'localhost:1', 'evil', ''))}
    path = rng.choice(bodies.PATHS)
    return client.request(
      rng.choice(bodies.METHODS), path, headers=headers
    ).status_code
  path, form = rng.choice([*bodies.FORMS.items()])
  content = json.dumps(bodies.change(rng, form)).encode()
  if rng.random() < 0.2:
    content = bytearray(content)
    for _ in range(rng.randint(1, 4)):
      content[rng.randrange(len(content))] = rng.randrange(256)
    content = bytes(content[: rng.randint(1, len(content))])
  if rng.random() < 0.03:
    content = b'[' * 90_000
  if rng.random() < 0.03:
    content = b'{"prompt": "' + b'a' * rng.choice((5_000, 200_000)) + b'"}'
  kinds = ('application/json',) * 9 + ('text/plain',)
  headers = {'Content-Type': rng.choice(kinds)}
  return client.post(path, content=content, headers=headers).status_code


def run(url, count, seed=0):
  """Sends `count` hostile requests. Returns {status: how many}.

  Fails if one is neither answered nor refused, or the next good one differs.
  """
  rng = random.Random(seed)
  statuses = collections.Counter()
  with httpx2.Client(base_url=url, timeout=60) as client:
    expected = client.post('/v1/completions', json=GOOD).json()['choices']
    for n in range(count):
      before = rng.getstate()
      status = send(client, url, rng)
      assert status in (0, 200) or 400 <= status < 500, (
        n,
        status,
        before[1][:3],
      )
      statuses[status] += 1
      if n % 25 == 24:
        good = client.post('/v1/completions', json=GOOD)
        assert good.status_code == 200, good.text
        assert good.json()['choices'] == expected
  return statuses


class Errors(logging.Handler):
  """Keeps records of errors: a traceback is one."""

  def __init__(self):
    super().__init__(logging.ERROR)
    self.records = []

  def emit(self, record):
    self.records.append(record)


def main(count):
  """Sends requests to a server of its own."""
  errors = Errors()
  logging.getLogger().addHandler(errors)
  with (
    tempfile.TemporaryDirectory() as folder,
    served.service(served.turns_model(), folder, **LIMITS) as service,
    served.address(service) as url,
  ):
    statuses = run(url, count)
  for status, number in sorted(statuses.items()):
    print(status or 'no answer', number)
  print(f'{len(errors.records)} errors were logged')
  return bool(errors.records)


if __name__ == '__main__':
  sys.exit(main(int(sys.argv[1])))
