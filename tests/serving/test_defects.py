"""What the log says of a defect, and what it doesn't."""

from rnn_jax.serving import defects

SECRET = 'a secret of the client'


def caught(error, cause=None):
  """An exception as it is caught."""
  try:
    try:
      raise cause or KeyError(SECRET)
    except Exception:
      raise error  # noqa: B904, its context is what is looked at
  except Exception as raised:
    return raised


def test_a_defect_has_its_place_and_no_text_of_a_client(caplog):
  defects.log('req-1', caught(ValueError(f'cannot read {SECRET}')))
  text = caplog.text
  assert SECRET not in text
  assert 'req-1 failed' in text and __file__ in text
  assert 'builtins.ValueError' in text and 'builtins.KeyError' in text


def test_what_the_system_says_is_shown():
  error = caught(ValueError(SECRET), OSError(28, 'No space left on device'))
  text = defects.describe(error)
  assert 'No space left on device' in text and SECRET not in text
