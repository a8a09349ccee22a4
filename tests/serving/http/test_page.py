"""The page, in a headless Chromium."""

import asyncio
import re

import httpx2
import pytest

from rnn_jax.inference import model as model_lib
from rnn_jax.inference import surprise_page
from rnn_jax.serving.http import app
from rnn_jax.serving.http import service as service_lib
from tests.serving.http import chromium
from tests.serving.http import served
from tests.support import classifiers
from tests.support import series

TOKENS = 12
SETTLED = '!running && !document.getElementById("go").disabled'


@pytest.fixture(name='needed', scope='module')
def _needed():
  if chromium.program() is None:
    pytest.skip('needs Chromium: apt-get install chromium')
  pytest.importorskip('aiohttp')


@pytest.fixture(name='url', scope='module')
def _url(tmp_path_factory, needed):
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
      await page.until('$("name").textContent == "tiny"')
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


@pytest.mark.parametrize('keys', ['', served.KEYS])
def test_the_page_of_a_classifier_shows_its_classes(needed, tmp_path, keys):
  model = model_lib.load(classifiers.write_texts(tmp_path / 'run'))

  async def use(url):
    async with chromium.opened(url) as page:
      await page.until('typeof classifies == "function"')
      if keys:
        await open_with_keys(page)
      await page.until('model')
      assert await page.value('$("load").hidden')
      assert 'undefined' not in await page.value('document.body.innerText')
      await page.value(
        '$("text").value = "the gate"; $("composer").requestSubmit()'
      )
      await page.until('document.querySelectorAll(".class").length')
      shown = await page.value(
        '[...document.querySelectorAll(".class")].map(x => ['
        'x.querySelector("span").textContent, x.querySelector("meter").value])'
      )
      (want,) = model.predict(['the gate'])
      assert dict(shown) == pytest.approx(want.probabilities)
      assert shown[0][0] == want.label
      best = 'document.querySelector(".best span").textContent'
      assert await page.value(best) == want.label
      # Its console has the answers of 401 that were provoked.
      assert len(page.errors) == (2 if keys else 0)

  with (
    served.service(model, tmp_path / 'states', keys) as service,
    served.address(service) as url,
  ):
    asyncio.run(use(url))


async def open_with_keys(page):
  """Opens a page that wants a key; first with a wrong one."""
  await page.until('!$("entry").hidden')
  text = await page.value('document.body.innerText')
  assert 'has keys' in text and 'Authorization' not in text
  assert await page.value('$("error").hidden && $("composer").hidden')
  give = '$("key").value = {!r}; $("entry").requestSubmit()'
  await page.value(give.format('x' * 20))
  await page.until('!$("error").hidden')
  assert 'does not know' in await page.value('$("error").textContent')
  await page.value(give.format(served.ALICE))
  await page.until('$("entry").hidden')


def test_the_page_draws_the_fan_of_a_stream(needed, tmp_path):
  frame = series.frame(2, 40)
  path = tmp_path / 'series.csv'
  frame.to_csv(path, index=False)
  model = model_lib.Model(series.bundle(path))
  bands = 'document.querySelectorAll("svg .band").length'
  points = 'document.querySelectorAll("svg .reading").length'

  async def use(url, client):
    async with chromium.opened(url) as page:
      await page.until('typeof watch == "function" && model')
      await page.until('$("turns").textContent.includes("no stream yet")')
      assert await page.value('$("composer").hidden && $("observe").hidden')
      for name in ('s0', 's1'):
        own = frame[frame.unique_id == name].fillna(1.0)
        times = [x.isoformat() for x in own.ds]
        begin = {'times': times, 'readings': own.y.tolist()}
        client.put(f'/v1/streams/{name}', json=begin).raise_for_status()
      await page.until(f'{bands} == 1 && {points} == {series.WINDOW}')
      await page.until('$("stream").options.length == 2')
      label = 'document.querySelector("svg").getAttribute("aria-label")'
      assert (await page.value(label)).startswith('s0: ')
      # Another client's reading is drawn, and so is the page's own; what had
      # the focus has it again.
      await page.value('document.querySelector("summary").focus()')
      client.post('/v1/streams/s0', json={'reading': 12.5})
      await page.until(f'{label}.startsWith("s0: 12.5 at 2026-01-02 16:00")')
      focus = 'document.activeElement === document.querySelector("summary")'
      assert await page.value(focus)
      await page.value('$("observe").requestSubmit()')
      await page.until(f'{label}.startsWith("s0: missing at")')
      assert await page.value(points) == series.WINDOW - 1
      assert client.get('/v1/streams/s0').json()['count'] == 42
      await page.value(
        '$("stream").value = "s1";'
        '$("stream").dispatchEvent(new Event("change"))'
      )
      await page.until(f'{label}.startsWith("s1: ")')
      rows = 'document.querySelectorAll("table tr").length'
      assert await page.value(rows) == 1 + series.HORIZON
      assert page.errors == []

  with (
    service_lib.Service(model, service_lib.Options('load')).running(
      0.0
    ) as service,
    served.address(service) as url,
    httpx2.Client(base_url=url) as client,
  ):
    asyncio.run(use(url, client))


def test_the_sizes_of_a_state_agree(url):
  with httpx2.Client(base_url=url) as client:
    (card,) = client.get('/v1/models').json()['data']
    for prompt in ('a', 'a' * 1500):
      made = client.post('/v1/states', json={'prompt': prompt}).json()
      assert made['bytes'] == card['state_bytes']


def test_the_page_loads_nothing_from_elsewhere():
  namespace = 'http://www.w3.org/2000/svg'
  texts = [path.read_text() for path in app.PAGE.iterdir()]
  assert len(texts) == 5
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
