"""JSON Lines."""

import json

from tests.support import files


def test_jsonl(tmp_path):
  rows = {'text': 'ü', 'label': 1}, {'text': 'b', 'label': 0}
  path = tmp_path / 'a.jsonl'
  path.write_text('\n\n'.join(map(json.dumps, rows)) + '\r\n')
  examples = files.read('jsonl', path)
  assert [example.values for example in examples] == [*rows]
  assert [example.where for example in examples] == [f'{path}:1', f'{path}:3']
  path.write_text('{"text": 1}\n[1]\n')
  message = f'{path}:2: a row must be an object, not list: write an object'
  assert files.refusal('jsonl', path).startswith(message)
  path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\n')
  assert files.values('jsonl', path) == [{'text': 'a'}]
  path.write_text('{"text": "\\ud83d\\ude00"}\n{"turns": ["a", "\\ud83d"]}\n')
  assert files.refusal('jsonl', path) == (
    f"{path}:2: 'turns' has an unpaired surrogate: fix it"
  )
  path.write_bytes(b'{"text": "a"}\n{"text": "\xff"}\n')
  assert files.refusal('jsonl', path).startswith(
    f'{path}:2: byte 10 is not utf-8'
  )
