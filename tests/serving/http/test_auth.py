"""API keys: files, digests, owners."""

import hashlib

import pytest

from rnn_jax import errors
from rnn_jax.serving.http import auth
from rnn_jax.serving.http import errors as http_errors
from tests.serving.http import served

DIGEST = hashlib.sha256(b'a-key-that-is-not-in-the-file').hexdigest()
TEXT = f"""
{served.KEYS}
carol sha256:{DIGEST}   # a comment
alice another-key-of-alice
"""


def test_a_key_names_its_owner():
  keys = auth.parse(TEXT, 'test')
  for key, owner in (
    (served.ALICE, auth.Owner('alice')),
    ('another-key-of-alice', auth.Owner('alice')),
    ('a-key-that-is-not-in-the-file', auth.Owner('carol')),
    (served.OPS, auth.Owner('ops', admin=True)),
  ):
    assert keys.owner(f'Bearer {key}') == owner
    assert keys.owner(f'bearer  {key} ') == owner


@pytest.mark.parametrize(
  'header',
  [None, '', 'Bearer', 'Bearer ', f'Basic {served.ALICE}', 'Bearer \xe9',
   f'Bearer {served.ALICE}x', f'Bearer {DIGEST}', f'Bearer sha256:{DIGEST}'],
)  # fmt: skip
def test_no_other_header_opens(header):
  with pytest.raises(http_errors.ApiError) as caught:
    auth.parse(TEXT, 'test').owner(header)
  assert caught.value.status == 401


def test_without_keys_anyone_may_ask():
  assert auth.parse('# none\n', 'test').owner(None) == auth.ANYONE


@pytest.mark.parametrize(
  'line, words',
  [
    ('alice', 'NAME KEY'),
    ('alice short', '16'),
    ('alice sha256:12', '64 hex digits'),
    ('a/b 0123456789abcdef', 'letters'),
    ('alice 0123456789abcdef root', 'admin'),
    ('alice 0123456789abcdef\nbob 0123456789abcdef', 'twice'),
  ],
)
def test_a_bad_line_is_named_but_not_shown(line, words):
  with pytest.raises(errors.InputError, match=words) as caught:
    auth.parse('\n' + line, 'keys')
  assert 'line ' in str(caught.value)
  assert '0123456789abcdef' not in str(caught.value)


def test_keys_are_of_a_file_or_the_environment(tmp_path, monkeypatch):
  monkeypatch.setenv(auth.VARIABLE, f'alice {served.ALICE}')
  assert auth.read(None).owner(f'Bearer {served.ALICE}').name == 'alice'
  path = tmp_path / 'keys'
  path.write_text(f'bob {served.BOB}')
  with pytest.raises(http_errors.ApiError):
    auth.read(path).owner(f'Bearer {served.ALICE}')
  path.write_text('')
  with pytest.raises(errors.InputError, match='no key'):
    auth.read(path)
  with pytest.raises(errors.InputError, match='No such file'):
    auth.read(tmp_path / 'nowhere')
