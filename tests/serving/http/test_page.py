"""The page, in a headless Chromium."""

import asyncio
import re

import pytest

from rnn_jax.inference import surprise_page
from rnn_jax.serving.http import app
from tests.serving.http import chromium
from tests.serving.http import served

TOKENS = 12
SETTLED = '!running && !document.getElementById("go").disabled'


@pytest.fixture(name='url', scope='module')
def _url(tmp_path_factory):
  if chromium.program() is None:
    pytest.skip('needs Chromium: apt-get install chromium')
  pytest.importorskip('aiohttp')
  folder = tmp_path_factory.mktemp('states')
  with (
    served.service(served.turns_model(), folder) as service,
    served.address(service) as url,
  ):
    yield url


async def say(page, text, tokens=TOKENS):
  """Writes into the page and waits for the answer."""
  await page.value(
    f'$("text").value = {text!r}; $("max_tokens").value = {tokens};'
    '$("temperature").value = 0; $("composer").requestSubmit()'
  )
  await page.until(SETTLED)


def test_a_page_writes_shades_and_forks(url):
  async def use():
    async with chromium.opened(url) as page:
      await page.until('document.readyState == "complete" && model')
      assert await page.value('$("name").textContent') == 'tiny'
      slots = 'document.querySelectorAll("#slots i").length'
      await page.until(f'{slots} == {served.ENGINE.slots}')
      await say(page, 'how are you')
      await say(page, 'where is it')
      assert await page.value('$("error").textContent') == ''
      turns = 'current.turns.map(t => [t.given, t.text, t.tokens.length])'
      first, second = await page.value(turns)
      assert (first[0], second[0]) == ('how are you', 'where is it')
      shown = await page.value(
        '[...document.querySelectorAll(".made i")].every('
        'm => /^c[0-8]$/.test(m.className) && m.tokens.length)'
      )
      assert shown and 0 < first[2] <= TOKENS
      size = await page.value(
        '[...document.querySelectorAll(".after span")].map(x => x.textContent)'
      )
      assert len(size) == 2 and all(' B' in x or ' KiB' in x for x in size)
      await page.point_at('document.querySelector(".made i")')
      await page.until('!$("tip").hidden')
      tip = await page.value('$("tip").innerText')
      assert '%' in tip and 'bits' in tip and len(tip.splitlines()) >= 6

      # The same words after a fork get the same answer.
      await page.value('document.querySelector(".after button").click()')
      assert await page.value('branches.length') == 2
      assert len(await page.value(turns)) == 1
      await say(page, 'where is it')
      assert await page.value(turns) == [first, second]
      await page.value('document.querySelector("nav button").click()')
      assert await page.value(turns) == [first, second]
      assert page.errors == []

  asyncio.run(use())


def test_the_page_shows_errors_and_stops(url):
  async def use():
    async with chromium.opened(url) as page:
      await page.until('document.readyState == "complete" && model')
      await say(page, 'how are you', 10**7)
      assert 'max_tokens' in await page.value('$("error").textContent')
      assert await page.value('current.turns.length') == 0
      assert await page.value('$("text").value') == 'how are you'
      await page.value(
        '$("max_tokens").value = 900000;$("composer").requestSubmit()'
      )
      await page.until('current.turns.length && current.turns[0].tokens.length')
      await page.value('$("stop").click()')
      await page.until(SETTLED)
      assert await page.value('current.turns[0].state.tokens') > 0

  asyncio.run(use())


def test_the_page_loads_nothing_from_elsewhere():
  namespace = 'http://www.w3.org/2000/svg'
  texts = [path.read_text() for path in app.PAGE.iterdir()]
  assert len(texts) == 4
  for text in texts:
    own = text.replace(namespace, '')
    assert not re.search(r'https?://|innerHTML|eval\(|style=', own)


def test_its_shades_are_those_of_the_surprise_page():
  style = (app.PAGE / 'style.css').read_text()
  for colors in (surprise_page.LIGHT, surprise_page.DARK):
    for n, (background, ink) in enumerate(colors):
      rule = f'.c{n} {{ background: {background}; color: {ink}; }}'
      assert rule in style
  edges = ', '.join(f'{edge:g}' for edge in surprise_page.EDGES)
  assert f'[{edges}]' in (app.PAGE / 'app.js').read_text()
