"""The page by keyboard, and its contrast: WCAG 2.2, level AA.

The contrast of text with its background is 4.5 to 1 or more; that of borders of
controls, the focus and parts of a picture 3 to 1. Computed from the colors of
style.css, in light and dark.
"""

import asyncio
import html.parser
import re

import pytest

from rnn_jax.inference import model as model_lib
from rnn_jax.serving.http import app
from tests.serving.http import chromium
from tests.serving.http import served
from tests.support import classifiers

TEXT, PARTS = 4.5, 3.0
DARK = '@media (prefers-color-scheme: dark) {'
# Lines that only decorate: nothing depends on seeing them.
DECORATION = {'.grid', 'header', '#composer', '.chat .made'}
CONTROLS = 'button', 'select', 'textarea, input'
COLORS = {'color': TEXT, 'stroke': PARTS}


def style():
  return re.sub(
    r'/\*.*?\*/', '', (app.PAGE / 'style.css').read_text(), flags=re.S
  )


def schemes():
  """Returns {scheme: [(selector, {property: value})]}, later rules last."""
  text = style()
  start = text.index(DARK)
  end = text.index('\n}', start)
  light = text[:start] + text[end + 2 :]
  dark = light + text[start + len(DARK) : end]
  return {'light': rules(light), 'dark': rules(dark)}


def rules(text):
  return [
    (
      ' '.join(selector.split()),
      dict(
        (x.strip() for x in line.split(':', 1))
        for line in body.split(';')
        if ':' in line
      ),
    )
    for selector, body in re.findall(r'([^{}]+)\{([^{}]*)\}', text)
  ]


class Colors:
  """The colors of a scheme, and how well one shows on another."""

  def __init__(self, found):
    self.rules = found
    self._names = {}
    for selector, values in found:
      if selector == ':root':
        self._names |= values

  def rgb(self, value, behind=None):
    """Returns red, green and blue in [0, 1]; None: no color is named."""
    if match := re.search(r'var\((--[\w-]+)\)', value):
      value = self._names[match[1]]
    match = re.search(r'#([0-9a-f]{3,8})\b', value)
    if not match:
      return None
    digits = match[1] if len(match[1]) > 4 else ''.join(2 * x for x in match[1])
    *rgb, alpha = (
      int(digits[n : n + 2] or 'ff', 16) / 255 for n in range(0, 8, 2)
    )
    if alpha == 1:
      return rgb
    return [
      alpha * x + (1 - alpha) * y for x, y in zip(rgb, behind, strict=True)
    ]

  def contrast(self, value, behind='var(--page)'):
    """Returns the contrast of two values of properties, or None."""
    back = self.rgb(behind) or self.rgb('var(--page)')
    front = self.rgb(value, back)
    return front and ratio(front, back)


def ratio(a, b):
  """Returns the contrast of two colors, as WCAG 2.2 defines it."""
  low, high = sorted(map(luminance, (a, b)))
  return (high + 0.05) / (low + 0.05)


def luminance(rgb):
  linear = [
    x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in rgb
  ]
  return sum(
    w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
  )


def test_the_contrast_is_that_of_the_standard():
  colors = Colors([(':root', {'--page': '#ffffff', '--line': '#0008'})])
  for value, want in (('#000', 21.0), ('#767676', 4.54), ('#777777', 4.48)):
    assert colors.contrast(value) == pytest.approx(want, abs=0.01)
  assert colors.contrast('1px solid var(--line)') == pytest.approx(
    colors.contrast('#777777')
  )
  assert colors.contrast('none') is None


@pytest.mark.parametrize('scheme', ('light', 'dark'))
def test_text_and_parts_can_be_seen(scheme):
  colors = Colors(schemes()[scheme])
  low, seen = {}, set()
  for selector, values in colors.rules:
    back = values.get('background', 'none')
    wanted = dict(COLORS)
    wanted['fill'] = TEXT if 'text' in selector else PARTS
    wanted['outline'] = PARTS
    if selector in CONTROLS or selector.startswith('#slots'):
      wanted['border'] = wanted['border-color'] = PARTS
      seen.add(selector)
    for name, least in wanted.items():
      if name not in values or selector.split()[-1] in DECORATION:
        continue
      # A focus, a border and a picture are on the page.
      behind = back if name == 'color' else 'var(--page)'
      found = colors.contrast(values[name], behind)
      if found is not None and found < least:
        low[selector, name] = round(found, 2)
  assert low == {} and {*CONTROLS} <= seen


@pytest.mark.parametrize('scheme', ('light', 'dark'))
def test_ink_shows_on_every_background(scheme):
  """What has no color of its own has that of the body."""
  colors = Colors(schemes()[scheme])
  for selector, values in colors.rules:
    if values.get('background') and 'color' not in values:
      if selector == '#slots i.used':  # no text
        continue
      found = colors.contrast('var(--ink)', values['background'])
      assert found >= TEXT, selector


class Fields(html.parser.HTMLParser):
  """Which fields of a page have a label, and its order of tabs."""

  def __init__(self, text):
    super().__init__()
    self.fields, self.labelled, self.problems = set(), set(), []
    self._labels = 0
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    given = dict(attrs)
    if tag == 'label':
      self._labels += 1
      self.labelled.add(given.get('for'))
    if tag in ('input', 'select', 'textarea'):
      self.fields.add(given['id'])
      if self._labels or 'aria-label' in given:
        self.labelled.add(given['id'])
    if int(given.get('tabindex', 0)) > 0:
      self.problems.append(f'{tag} has an order of its own')
    if tag == 'html' and not given.get('lang'):
      self.problems.append('no language')
    if tag in ('input', 'textarea') and given.get('autofocus'):
      self.problems.append(f'{tag} takes the focus')

  def handle_endtag(self, tag):
    self._labels -= tag == 'label'


def test_each_field_has_a_label():
  page = Fields((app.PAGE / 'index.html').read_text())
  assert page.fields and page.fields <= page.labelled and not page.problems
  wrong = Fields('<html><input id="a"><select id="b" tabindex="2">')
  assert wrong.fields == {'a', 'b'} and wrong.labelled == set()
  assert len(wrong.problems) == 2


# What has the focus, whether it is drawn, what it is called, and whether it was
# seen before.
FOCUS = """(e => [e.id || e.className || e.tagName,
  getComputedStyle(e).outlineStyle === 'solid'
    && parseFloat(getComputedStyle(e).outlineWidth) >= 2,
  e.ariaLabel || e.labels?.[0]?.textContent.trim() || e.textContent.trim(),
  visited.size === visited.add(e).size])(document.activeElement)"""


async def press(page, key):
  code = {'Tab': 9, 'Enter': 13, 'Escape': 27, 'End': 35, 'ArrowLeft': 37}[key]
  typed = {'text': '\r'} if key == 'Enter' else {}
  for kind in ('keyDown', 'keyUp'):
    await page.call(
      'Input.dispatchKeyEvent',
      type=kind,
      key=key,
      code=key,
      windowsVirtualKeyCode=code,
      **(typed if kind == 'keyDown' else {}),
    )


async def tabs(page, count=40):
  """Returns what Tab reaches from the top of the page, in order."""
  await page.value(
    'document.body.tabIndex = -1; document.body.focus();'
    'document.body.removeAttribute("tabindex"); window.visited = new Set()'
  )
  found = []
  for _ in range(count):
    await press(page, 'Tab')
    name, drawn, called, again = await page.value(FOCUS)
    if again or name in ('BODY', 'HTML'):
      break
    assert drawn, f'{name}: its focus is not seen'
    assert called, f'{name} has no name'
    found.append(name)
  return found


@pytest.fixture(name='needed', scope='module')
def _needed():
  if chromium.program() is None:
    pytest.skip('needs Chromium: apt-get install chromium')
  pytest.importorskip('aiohttp')


def test_a_keyboard_reaches_all_of_a_conversation(needed, tmp_path):
  async def use(url):
    async with chromium.opened(url) as page:
      await page.until('document.readyState == "complete" && model')
      await page.value(
        '$("text").value = "how are you"; $("max_tokens").value = 6;'
        '$("temperature").value = 0; $("composer").requestSubmit()'
      )
      await page.until('!running && !$("go").disabled && $("said").textContent')
      assert await page.value('$("said").textContent == current.turns[0].text')
      found = await tabs(page)
      # In the order of tabs: two conversations, a token, the fork, the input.
      assert found[:2] == ['BUTTON', 'BUTTON'] and found[3] == 'BUTTON'
      assert re.fullmatch(r'c\d', found[2])
      assert found[4:] == ['text', 'go', 'SUMMARY']
      # From the first token to the last one and back, with what it could be.
      await page.value('document.querySelector(".made i").focus()')
      assert not await page.value('$("tip").hidden')
      await press(page, 'End')
      last = 'document.activeElement === document.querySelector(".made")'
      assert await page.value(f'{last}.lastElementChild')
      await press(page, 'ArrowLeft')
      assert await page.value(f'{last}.lastElementChild.previousElementSibling')
      assert 'bits' in await page.value('$("tip").innerText')
      await press(page, 'Escape')
      assert await page.value('$("tip").hidden')
      # A conversation that is chosen keeps the focus.
      await page.value('document.querySelector("nav button").focus()')
      await press(page, 'Enter')
      chosen = 'document.activeElement.getAttribute("aria-current")'
      assert await page.value(chosen) == 'true'
      await page.value('$("options").open = true')
      fields = [x for x in await tabs(page) if x in FIELDS]
      assert fields == FIELDS
      assert page.errors == []

  with (
    served.service(served.turns_model(), tmp_path) as service,
    served.address(service) as url,
  ):
    asyncio.run(use(url))


FIELDS = ['temperature', 'top_p', 'top_k', 'max_tokens', 'seed']


def test_a_keyboard_reaches_a_key_and_a_classifier(needed, tmp_path):
  model = model_lib.load(classifiers.write_texts(tmp_path / 'run'))

  async def use(url):
    async with chromium.opened(url) as page:
      await page.until('typeof classifies == "function"')
      await page.until('!$("entry").hidden')
      assert await tabs(page) == ['key', 'BUTTON']
      await page.value(
        f'$("key").value = {served.ALICE!r}; $("entry").requestSubmit()'
      )
      await page.until('model && $("entry").hidden')
      assert await tabs(page) == ['text', 'go']
      await page.value('$("text").value = "fine"; $("text").focus()')
      await press(page, 'Tab')
      await press(page, 'Enter')
      await page.until('$("said").textContent')
      assert ' %' in await page.value('$("said").textContent')

  with (
    served.service(model, tmp_path / 'states', served.KEYS) as service,
    served.address(service) as url,
  ):
    asyncio.run(use(url))
