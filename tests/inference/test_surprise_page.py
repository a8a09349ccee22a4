"""The page of surprise: what it shows, and that no text acts."""

import base64
import hashlib
import html.parser
import json
import math

import numpy as np
import pytest

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import framing
from rnn_jax.inference import surprise
from rnn_jax.inference import surprise_page

BYTES = tokenizer_lib.Bytes()
NASTY = '</script><script>alert(1)</script> & "é€" \x1b[1m \u202e\n<!-- \n'


def score(text, bits=None, read=0):
  """A made-up score of a text; the first `read` tokens don't count."""
  ids_L = np.append(BYTES.encode(text), BYTES.boundary)
  L = len(ids_L)
  bits_L = np.full(L, 1.5) if bits is None else np.array(bits)
  framed = framing.Framed(
    text.encode(), BYTES.boundary, ids_L, np.arange(L) >= read
  )
  values = surprise.Values(
    np.float32(-bits_L * math.log(2)),
    np.arange(1, L + 1),
    np.ones(L, np.float32),
    np.tile([60, BYTES.boundary], (L, 1)),
    np.tile(np.float32([-0.5, -2]), (L, 1)),
  )
  return surprise.Score(framed, values, BYTES)


class Parser(html.parser.HTMLParser):
  """What a browser reads: marks, scripts and other tags."""

  def __init__(self, page):
    super().__init__()
    self.tags, self.marks, self.scripts, self.text = [], [], [], ''
    self._inside = ''
    self.feed(page)

  def handle_starttag(self, tag, attrs):
    self._inside = tag
    self.tags.append((tag, dict(attrs)))
    if tag == 'i':
      self.marks.append((dict(attrs), ''))
    if tag == 'script':
      self.scripts.append('')

  def handle_endtag(self, tag):
    self._inside = ''

  def handle_data(self, data):
    if self._inside == 'i':
      self.marks[-1] = (self.marks[-1][0], self.marks[-1][1] + data)
    if self._inside == 'script':
      self.scripts[-1] += data


def page(*scores):
  made = surprise_page.Page('runs/<demo>')
  for n, one in enumerate(scores):
    made.add(f'text <{n}>', one)
  return made.html()


def own_marks(text, **options):
  """The marks of a text, without those of the legend."""
  return Parser(page(score(text, **options))).marks[11:]


def test_marks_show_the_text_and_its_surprise():
  marks = own_marks('aé€\n', bits=[0.2, 1.1, 2.1, 5, 5, 5, 0.7, 13])
  assert [text for _, text in marks] == ['a', 'é', '€', '↵\n', '∎']
  levels = [attributes['class'] for attributes, _ in marks]
  assert levels == ['c0', 'c4', 'c8', 'c1', 'c8']  # of 0.2, 3.2, 15, 0.7, 13
  counts = [attributes.get('data-n') for attributes, _ in marks]
  assert counts == [None, '2', '3', None, None]
  assert [a['class'] for a, _ in own_marks('ab', read=2)] == ['x', 'x', 'c2']


def test_the_data_of_a_mark_are_those_of_its_tokens():
  bits = [1, 2, 3, math.inf, math.nan]
  parsed = Parser(page(score('aéb', bits=bits)))
  data = json.loads(parsed.scripts[0])
  assert data['ids'] == [97, 0xC3, 0xA9, 98, BYTES.boundary]
  assert data['logprobs'][:3] == [-0.693, -1.386, -2.079]
  assert data['logprobs'][3:] == [None, None]
  assert data['ranks'] == [1, 2, 3, 4, 5]
  assert data['width'] == 2 and data['top'] == [60, 256] * 5
  assert data['top_logprobs'] == [-0.5, -2] * 5
  assert {data['names'][str(i)] for i in (97, 0xC3, 256)} == {
    'a',
    '\\xc3',
    '∎',
  }


def test_no_text_acts():
  made = page(score(NASTY), score(NASTY))
  parsed = Parser(made)
  tags = [tag for tag, _ in parsed.tags]
  assert tags.count('script') == 3  # the data of two texts, and the page's
  assert parsed.scripts[-1] == surprise_page.SCRIPT
  assert not {'img', 'link', 'iframe', 'base', 'demo', '0'} & {*tags}
  assert not any(
    name.startswith('on') or name in ('src', 'href')
    for _, attributes in parsed.tags
    for name in attributes
  )
  assert not {'\x1b', '\u202e'} & {*made}
  shown = ''.join(text for _, text in parsed.marks[11 : 11 + len(NASTY) + 1])
  wanted = NASTY.replace('\x1b', '‹1B›').replace('\u202e', '‹202E›')
  assert shown == wanted.replace('\n', '↵\n') + '∎'


def test_the_policy_permits_only_the_pages_script():
  (policy,) = (
    attributes['content']
    for tag, attributes in Parser(page()).tags
    if 'http-equiv' in attributes
  )
  digest = hashlib.sha256(surprise_page.SCRIPT.encode()).digest()
  hashed = base64.b64encode(digest).decode()
  assert policy.startswith("default-src 'none';")
  assert policy.endswith(f"script-src 'sha256-{hashed}'")


def test_a_page_has_a_largest_size(monkeypatch):
  monkeypatch.setattr(surprise_page, 'MAX_TOKENS', 4)
  made = page(score('ab'), score('cd'), score('ef'))
  assert [text for _, text in Parser(made).marks[11:]] == ['a', 'b', '∎', 'c']
  assert '2 more tokens are not shown' in made
  assert '1 more texts are not shown' in made


def test_blocks_are_whole_lines_that_know_their_first_token(monkeypatch):
  monkeypatch.setattr(surprise_page, 'BLOCK', 3)
  parsed = Parser(page(score('ab\né\nf\ng')))
  first = [
    attributes['data-at']
    for tag, attributes in parsed.tags
    if 'data-at' in attributes
  ]
  assert first == ['0', '3', '6']


@pytest.mark.parametrize('colors', (surprise_page.LIGHT, surprise_page.DARK))
def test_colors_can_be_read_and_told_apart_without_their_hue(colors):
  assert len(colors) == len(surprise_page.EDGES) + 1
  backgrounds = [luminance(background) for background, _ in colors]
  steps = np.diff(backgrounds)
  assert (steps < 0).all() or (steps > 0).all()
  for background, ink in colors:
    dark, light = sorted((luminance(background), luminance(ink)))
    assert (light + 0.05) / (dark + 0.05) >= 4.5, background


def luminance(color):
  """Relative luminance, as WCAG 2 defines it."""
  parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
  linear = [
    x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
  ]
  return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize(
  ('bits', 'wanted'),
  ((0, 0), (0.49, 0), (0.5, 1), (5, 5), (12, 8), (math.inf, 8), (math.nan, 8)),
)
def test_levels(bits, wanted):
  assert surprise_page.level(bits) == wanted
