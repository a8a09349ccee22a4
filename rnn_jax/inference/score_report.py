"""Scores of texts as rows: a table for people, JSON for programs.

    table = Table()
    print(table.header())
    print(table.line('notes.txt', score))
    print(table.total())

Bits per byte stand next to those of gzip -9 and xz -9e on the same text.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from rnn_jax.data.text import compressors
from rnn_jax.inference import surprise

WIDTH = 32  # characters of an id
COLUMNS = ('tokens', 'bytes', 'loss', 'bits/byte', 'gzip', 'xz', 'perplexity')
TOKEN_WIDTH = 14


def values(name: str, score: surprise.Score, per_token: bool) -> dict[str, Any]:
  """Returns a score as JSON-ready values.

  Args:
    name: of the text, key 'id'.
    score: of the text.
    per_token: whether key 'tokens' has a list with all predicted tokens; else
      it is absent.
  """
  row = {
    'id': name,
    'loss': score.loss,
    'logprob': score.logprob,
    'perplexity': score.perplexity,
    'bits_per_byte': score.bits_per_byte,
    **_peers(score),
    'token_count': score.token_count,
    'byte_count': score.byte_count,
    'unknown_count': score.unknown_count,
  }
  if per_token:
    row['tokens'] = [dataclasses.asdict(token) for token in score.tokens()]
  return row


def token_lines(score: surprise.Score) -> Iterator[str]:
  """Yields a line for each predicted token, after one with headings."""
  yield f'  {"bits":>8}  {"rank":>6}  {"token":<{TOKEN_WIDTH}}  most likely'
  for token in score.tokens():
    top = '  '.join(
      f'{_name(x.text)} {math.exp(x.logprob):.1%}' for x in token.top
    )
    counted = '' if token.counted else '  (only read)'
    line = (
      f'  {token.bits:>8.3f}  {token.rank:>6,}  '
      f'{_name(token.text):<{TOKEN_WIDTH}}  {top}{counted}'
    )
    yield line.rstrip()


class Table:
  """Lines of a table that is printed while it grows."""

  def __init__(self) -> None:
    self._texts = 0
    self._sums = dict.fromkeys(('logprob', 'tokens', 'bytes'), 0.0)
    # Bits of all texts; nan where a text has none.
    self._bits = dict.fromkeys(('bits/byte', 'gzip', 'xz'), 0.0)

  def header(self) -> str:
    """Returns the headings."""
    return _row('text', COLUMNS)

  def line(self, name: str, score: surprise.Score) -> str:
    """Returns the line of a text and adds it to the total."""
    bits = {'bits/byte': score.bits_per_byte} | _peers(score)
    counts = score.token_count, score.byte_count
    self._texts += 1
    for key, value in zip(self._sums, (score.logprob, *counts), strict=True):
      self._sums[key] += value
    for key, value in bits.items():
      if score.byte_count:
        self._bits[key] += score.byte_count * _number(value)
    return _row(name, _cells(*counts, score.loss, *bits.values()))

  def total(self) -> str:
    """Returns the line of all texts; '' if there are fewer than two."""
    if self._texts < 2:
      return ''
    tokens, size = int(self._sums['tokens']), int(self._sums['bytes'])
    bits = [x / size if size else None for x in self._bits.values()]
    loss = -self._sums['logprob'] / tokens
    return _row(f'all {self._texts:,} texts', _cells(tokens, size, loss, *bits))


def _peers(score):
  if not score.byte_count:
    return {'gzip': None, 'xz': None}
  return compressors.of_text(score.framed.text)


def _cells(tokens, size, loss, *bits):
  perplexity = math.exp(min(loss, surprise.LARGEST))
  shown = ['-' if math.isnan(_number(x)) else f'{_number(x):.4f}' for x in bits]
  return f'{tokens:,}', f'{size:,}', f'{loss:.4f}', *shown, f'{perplexity:,.4g}'


def _number(value):
  return math.nan if value is None else value


def _row(name, cells):
  if len(name) > WIDTH:
    name = f'...{name[3 - WIDTH :]}'
  return f'{name:<{WIDTH}}' + ''.join(f'  {cell:>10}' for cell in cells)


def _name(text):
  return repr(text).replace('\\\\', '\\') if text else 'end'
