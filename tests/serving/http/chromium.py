"""A headless Chromium, driven by its DevTools protocol."""

import asyncio
import base64
import contextlib
import re
import shutil
import tempfile

PROGRAMS = 'chromium', 'chromium-browser', 'google-chrome'
FLAGS = (
  '--headless=new',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--remote-debugging-port=0',
  '--hide-scrollbars',
  '--no-first-run',
)


def program():
  """The path of a Chromium; None: there is none."""
  return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
  """An open page.

  Attributes:
    errors: what its console and its policy complained of.
  """

  def __init__(self, socket, url):
    self.errors = []
    self._socket = socket
    self._url = url
    self._last = 0

  async def call(self, method, **params):
    """Sends a command. Returns its result."""
    self._last += 1
    await self._socket.send_json(
      {'id': self._last, 'method': method, 'params': params}
    )
    while True:
      message = await self._socket.receive_json(timeout=60)
      if message.get('id') == self._last:
        assert 'error' not in message, message
        return message['result']
      entry = message.get('params', {})
      if message.get('method') == 'Runtime.exceptionThrown':
        self.errors.append(entry['exceptionDetails'])
      if message.get('method') == 'Log.entryAdded':
        if entry['entry']['level'] == 'error':
          self.errors.append(entry['entry'])

  async def value(self, script):
    """The value of a script's expression."""
    result = await self.call(
      'Runtime.evaluate',
      expression=script,
      returnByValue=True,
      awaitPromise=True,
    )
    assert 'exceptionDetails' not in result, result
    return result['result'].get('value')

  async def until(self, script, seconds=60):
    """Waits until an expression is true."""
    async with asyncio.timeout(seconds):
      while not await self.value(script):
        await asyncio.sleep(0.05)

  async def point_at(self, script):
    """Moves the mouse to an element."""
    box = await self.value(
      f'(b => [b.left + b.width / 2, b.top + b.height / 2])'
      f'(({script}).getClientRects()[0])'
    )
    await self.call(
      'Input.dispatchMouseEvent', type='mouseMoved', x=box[0], y=box[1]
    )

  async def screenshot(self):
    """A PNG of what it shows."""
    result = await self.call('Page.captureScreenshot', format='png')
    return base64.b64decode(result['data'])


@contextlib.asynccontextmanager
async def opened(url, width=1100, height=900):
  """Opens a page in a browser of its own."""
  import aiohttp

  folder = tempfile.mkdtemp()
  process = await asyncio.create_subprocess_exec(
    program(),
    *FLAGS,
    f'--user-data-dir={folder}',
    f'--window-size={width},{height}',
    'about:blank',
    stderr=asyncio.subprocess.PIPE,
    stdout=asyncio.subprocess.DEVNULL,
  )
  try:
    async with asyncio.timeout(60):
      found = None
      while not found:
        line = (await process.stderr.readline()).decode()
        found = re.search(r'ws://(127\.0\.0\.1:\d+)/', line)
    async with aiohttp.ClientSession() as session:
      async with session.get(f'http://{found[1]}/json/list') as response:
        targets = await response.json()
      target = next(x for x in targets if x['type'] == 'page')
      async with session.ws_connect(
        target['webSocketDebuggerUrl'], max_msg_size=0
      ) as socket:
        page = Page(socket, url)
        for domain in ('Page', 'Runtime', 'Log'):
          await page.call(f'{domain}.enable')
        await page.call('Page.navigate', url=url)
        yield page
  finally:
    with contextlib.suppress(ProcessLookupError):
      process.kill()
    await process.wait()
    shutil.rmtree(folder, ignore_errors=True)
