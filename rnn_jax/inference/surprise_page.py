"""Surprise as a page: texts whose tokens are coloured by -log2 p.

    page = Page('runs/demo')
    page.add('notes.txt', scorer.score([text], top_k=5)[0])
    files.write_whole('page.html', page.html())

One HTML file that loads nothing. Texts are strangers' data: all of them is
escaped, and the policy in the page's head permits only its own script, by
hash, which writes texts as texts. A character of several tokens is one mark,
with the sum of their bits. Colours darken with surprise on a light screen and
brighten on a dark one, in one hue and by luminance, which needs no sight of
hues; every label on them has a contrast of 4.5 or more.
"""

import base64
import bisect
import hashlib
import html
import math
import pathlib
import unicodedata
from collections.abc import Iterator
from collections.abc import Sequence

from rnn_jax.inference import surprise
from rnn_jax.system import files

EDGES = (0.5, 1, 2, 3, 4, 6, 8, 12)  # bits between two levels of colour
# (background, text) of each level.
LIGHT = (
  ('#ffffff', '#1b1b1f'),
  ('#fff3c4', '#1b1b1f'),
  ('#fee391', '#1b1b1f'),
  ('#fec44f', '#1b1b1f'),
  ('#fe9929', '#1b1b1f'),
  ('#ec7014', '#1b1b1f'),
  ('#c24a02', '#ffffff'),
  ('#993404', '#ffffff'),
  ('#5c2205', '#ffffff'),
)
DARK = (
  ('#15171c', '#e4e4e8'),
  ('#2c2410', '#e4e4e8'),
  ('#463311', '#e4e4e8'),
  ('#614411', '#ffffff'),
  ('#7f5510', '#ffffff'),
  ('#b97414', '#15171c'),
  ('#dc9220', '#15171c'),
  ('#f7b955', '#15171c'),
  ('#ffe3a3', '#15171c'),
)
PAGE = pathlib.Path(__file__).parent / 'page'
STYLE = (PAGE / 'surprise.css').read_text(encoding='utf-8')
SCRIPT = (PAGE / 'surprise.js').read_text(encoding='utf-8')
MAX_TOKENS = 300_000  # tokens on a page: a browser keeps an element for each
END = '∎'  # a boundary
BLOCK = 400  # tokens after which a block of lines may end


class Page:
  """A page that texts are added to."""

  def __init__(self, title: str) -> None:
    self._title = title
    self._articles: list[str] = []
    self._left = MAX_TOKENS
    self._omitted = 0

  def add(self, name: str, score: surprise.Score) -> None:
    """Adds a text by the name `name`; beyond MAX_TOKENS it is only counted."""
    if not self._left:
      self._omitted += 1
      return
    tokens = []
    for token, _ in zip(score.tokens(), range(self._left), strict=False):
      tokens.append(token)
    self._left -= len(tokens)
    cut = len(score.framed.ids_L) - len(tokens)
    note = f'<p>{cut:,} more tokens are not shown.</p>' if cut else ''
    self._articles.append(
      f'<article><h2>{_escaped(name)}</h2>\n<p>{_summary(score)}</p>\n'
      f'<div class=text>{_body(tokens, score.framed.text)}</div>{note}\n'
      f'<script type="application/json">{_data(tokens)}</script></article>\n'
    )

  def html(self) -> str:
    """Returns the whole page."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest())
    omitted = ''
    if self._omitted:
      omitted = f'<p>{self._omitted:,} more texts are not shown.</p>\n'
    return (
      '<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n'
      '<meta http-equiv="Content-Security-Policy" content="default-src '
      "'none'; style-src 'unsafe-inline'; "
      f"script-src 'sha256-{digest.decode()}'\">\n"
      '<meta name=viewport content="width=device-width,initial-scale=1">\n'
      f'<title>Surprise: {_escaped(self._title)}</title>\n'
      f'<style>{_style()}</style></head><body>\n'
      f'<header><h1>Surprise</h1>\n<p>{_escaped(self._title)}. A token is '
      'coloured by its surprise, −log<sub>2</sub> of its probability '
      'given all text before it. Point at one for its probability and what '
      f'else was likely.</p>\n{_legend()}</header>\n'
      f'<main>{"".join(self._articles)}{omitted}</main>\n'
      f'<div id=tip role=tooltip hidden></div>\n<script>{SCRIPT}</script>\n'
      '</body></html>\n'
    )


def level(bits: float) -> int:
  """Returns the level of colour of a surprise; NaN is the highest."""
  return len(EDGES) if math.isnan(bits) else bisect.bisect_right(EDGES, bits)


def visible(text: str) -> str:
  """Returns a text in which every character shows, and none acts.

  A new line has an arrow before it. What controls a terminal or the direction
  of writing becomes its number.
  """
  return ''.join(map(_visible_character, text))


def _visible_character(character):
  if character == '\n':
    return '↵\n'
  if character == '\t' or unicodedata.category(character) not in ('Cc', 'Cf'):
    return character
  return f'‹{ord(character):X}›'


def _escaped(text):
  return html.escape(visible(text))


def _summary(score):
  bits = score.bits_per_byte
  bits = '' if bits is None else f' · <b>{bits:.3f}</b> bits per byte'
  unknown = score.unknown_count
  unknown = f' · {unknown:,} outside the vocabulary' if unknown else ''
  return (
    f'<b>{score.loss * surprise.NAT:.3f}</b> bits per token{bits} · '
    f'loss {score.loss:.3f} nats · perplexity {score.perplexity:,.4g} · '
    f'{score.token_count:,} tokens · {score.byte_count:,} bytes{unknown}'
  )


def _legend():
  """Returns a scale with the bits at which the colour changes."""
  names = [f'< {EDGES[0]:g}']
  names += [f'{a:g}–{b:g}' for a, b in zip(EDGES, EDGES[1:], strict=False)]
  names += [f'≥ {EDGES[-1]:g}']
  scale = ''.join(f'<i class=c{n}>{name}</i>' for n, name in enumerate(names))
  return (
    f'<p class=legend>{scale} bits &ensp; <i class=c1>{END}</i> the text ends '
    '&ensp; <i class=x>text</i> only read</p>\n'
  )


def _body(tokens, text):
  """Returns the marks of a text in blocks of whole lines."""
  parts, block, first, at, end = [], [], 0, 0, 0
  for group in _groups(tokens, text):
    start, stop = group[0].start, group[-1].stop
    if start is not None:
      block.append(html.escape(_plain(text[end:start])))
      end = stop
    shown = _mark(group, text)
    block.append(shown)
    at += len(group)
    if at - first >= BLOCK and shown.endswith('\n</i>'):
      parts.append(f'<div data-at={first}>{"".join(block)}</div>')
      block, first = [], at
  parts.append(f'<div data-at={first}>{"".join(block)}</div>')
  return ''.join(parts)


def _plain(content):
  return visible(content.decode(errors='replace')).replace('↵\n', '\n')


def _groups(
  tokens: Sequence[surprise.Token], text: bytes
) -> Iterator[list[surprise.Token]]:
  """Yields the tokens in groups that end between two characters."""
  group = []
  for token in tokens:
    group.append(token)
    if (
      token.stop is None
      or text[token.stop : token.stop + 1] < b'\x80'
      or (text[token.stop] & 0xC0 != 0x80)
    ):
      yield group
      group = []
  if group:
    yield group


def _mark(group, text):
  start, stop = group[0].start, group[-1].stop
  if start is None:
    shown = ''.join(token.text for token in group)
  else:
    shown = text[start:stop].decode(errors='replace')
  counted = all(token.counted for token in group)
  color = f'c{level(sum(token.bits for token in group))}' if counted else 'x'
  several = f' data-n={len(group)}' if len(group) > 1 else ''
  return f'<i class={color}{several}>{_escaped(shown) or END}</i>'


def _data(tokens):
  """Returns what the page shows about a token that is pointed at, as JSON."""
  top = [x for token in tokens for x in token.top]
  names = {token.id: visible(token.text) or END for token in tokens}
  names |= {x.id: visible(x.text) or END for x in top}
  data = {
    'names': names,
    'ids': [token.id for token in tokens],
    'logprobs': [round(token.logprob, 3) for token in tokens],
    'ranks': [token.rank for token in tokens],
    'width': len(tokens[0].top) if tokens else 0,
    'top': [x.id for x in top],
    'top_logprobs': [round(x.logprob, 3) for x in top],
  }
  # '</script>' in a text would end the element.
  return files.to_json(data, separators=(',', ':')).replace('<', '\\u003c')


def _style():
  rules = [STYLE]
  for colors, media in ((LIGHT, 'light'), (DARK, 'dark')):
    levels = ''.join(
      f'.c{n}{{background:{background};color:{text}}}'
      for n, (background, text) in enumerate(colors)
    )
    page, ink = colors[0]
    rules.append(
      f'@media (prefers-color-scheme:{media}){{:root{{--page:{page};'
      f'--ink:{ink}}}{levels}}}'
    )
  return '\n'.join(rules)
