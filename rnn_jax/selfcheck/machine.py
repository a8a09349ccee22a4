"""What there is on this machine, and what is missing: for `rnn-jax doctor`.

Each finding is a line of one screen, which fits into a bug report. Nothing is
installed or changed; a probe that fails is a finding too.
"""

import importlib.metadata
import os
import pathlib
import platform
import shutil
import socket
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

from packaging import requirements
from packaging import version as versions

from rnn_jax import version
from rnn_jax.native import library
from rnn_jax.selfcheck import base
from rnn_jax.selfcheck import gla as gla_check
from rnn_jax.selfcheck import products as products_check
from rnn_jax.system import bounds
from rnn_jax.system import compile_cache
from rnn_jax.system import host
from rnn_jax.system import processor
from rnn_jax.system import provenance

NAME = 'rnn_jax'
PORT = 8000  # of launch.serve, by default
LEAST_DISK = 1 << 30  # bytes
# Extras of developers, and what `devices` looks at.
NOT_FOR_USERS = (
  'test',
  'docs',
  'release',
  'peers',
  'forecast-peers',
  'llama',
  'cuda12',
  'cuda13',
)
OK, MISSING, BROKEN = 'ok', 'missing', 'broken'
WIDTH = 10  # of names


class Finding(NamedTuple):
  """A line.

  Attributes:
    name: of what was looked at.
    text: what there is.
    status: OK; MISSING, something optional; or BROKEN.
    remedy: what to do about it; '' if nothing is wrong.
  """

  name: str
  text: str
  status: str = OK
  remedy: str = ''

  def __str__(self) -> str:
    mark = {OK: ' ', MISSING: '-', BROKEN: '!'}[self.status]
    line = f'{mark} {self.name:<{WIDTH}} {self.text}'
    return f'{line}\n    {self.remedy}' if self.remedy else line


def findings() -> Iterator[Finding]:
  """Yields all of them, the quickest first."""
  for name, probe in PROBES.items():
    try:
      yield from probe(name)
    except importlib.metadata.PackageNotFoundError:
      remedy = 'pip install -e . in the checkout'
      yield Finding(name, f'{NAME} is not installed', MISSING, remedy)
    except Exception as error:  # whatever is wrong with this machine
      text = f'{type(error).__name__}: {error}'.splitlines()[0]
      yield Finding(name, text, BROKEN, 'put all of this into a bug report')


def _project(name):
  commit = provenance.commit()
  folder = pathlib.Path(__file__).parents[1]
  text = f'{version.__version__}, {commit or "no checkout"}, {folder}'
  yield Finding(name, text)


def _python(name):
  yield Finding(name, f'{platform.python_version()}, {platform.platform()}')


def _packages(name):
  """The required packages, and whether their versions are in range."""
  required = [x for x in _requirements() if not x.marker]
  found, wrong = [], []
  for one in required:
    installed = _installed(one.name)
    if installed is None or not one.specifier.contains(installed, True):
      wrong.append(str(one))
    found.append(f'{one.name} {installed or "missing"}')
  if not wrong:
    first = [x for x in found if x.split()[0] in ('jax', 'flax', 'optax')]
    text = f'{", ".join(first)} and {len(found) - len(first)} more'
    yield Finding(name, text)
    return
  names = {requirements.Requirement(x).name for x in wrong}
  text = ', '.join(x for x in found if x.split()[0] in names)
  quoted = ' '.join(f"'{x}'" for x in wrong)
  yield Finding(name, text, BROKEN, f'pip install {quoted}')


def _extras(name):
  """Optional packages, by the extra that brings them."""
  missing: dict[str, list[str]] = {}
  for one in _requirements():
    for extra in _extras_of(one):
      own = missing.setdefault(extra, [])
      own += [one.name] if _installed(one.name) is None else []
  here = sorted(extra for extra, names in missing.items() if not names)
  yield Finding(name, f'installed: {", ".join(here) or "none"}')
  lacking = {extra: names for extra, names in missing.items() if names}
  if lacking:
    text = '; '.join(f'{extra}: {", ".join(x)}' for extra, x in lacking.items())
    names = ','.join(lacking)
    remedy = f"what you need of pip install '{NAME}[{names}]'"
    yield Finding(name, f'not installed: {text}', MISSING, remedy)


def _extras_of(requirement):
  """Returns the extras, of those for users, that bring a package."""
  marker = requirement.marker
  if marker is None or marker.evaluate({'extra': ''}):
    return []
  extras = importlib.metadata.metadata(NAME).get_all('Provides-Extra') or []
  return [
    extra
    for extra in extras
    if extra not in NOT_FOR_USERS and marker.evaluate({'extra': extra})
  ]


def _processor(name):
  cores = processor.cores()
  kind = provenance.processor_name()
  text = f'{kind}, {cores} cores'
  if (free := bounds.free()) < host.UNLIMITED:
    text += f', {bounds.gib(free)} of memory free'
  yield Finding(name, text)


def _devices(name):
  import jax

  found = jax.devices()
  kinds = {device.device_kind for device in found}
  text = f'{len(found)} x {found[0].platform} ({", ".join(sorted(kinds))})'
  if found[0].platform == 'cpu' and shutil.which('nvidia-smi'):
    remedy = f"pip install '{NAME}[cuda12]', or [cuda13] with driver 580"
    if os.environ.get('JAX_PLATFORMS') == 'cpu':
      remedy = 'unset JAX_PLATFORMS to use the GPU'
    yield Finding(name, f'{text}; there is an nvidia-smi', MISSING, remedy)
  else:
    yield Finding(name, text)


def _library(name):
  if why := library.lacking():
    remedy = 'without it all works, slower on a CPU; a C++ compiler makes it'
    yield Finding(name, why, MISSING, remedy)
  else:
    yield Finding(name, library.describe().removeprefix('native: '))


def _programs(name):
  import jax

  folder = compile_cache.own_folder(jax.lib.__version__)
  if not folder:
    remedy = 'name a folder with --compilation_cache'
    yield Finding(name, 'no folder for them', MISSING, remedy)
    return
  sizes = [path.stat().st_size for path in pathlib.Path(folder).glob('*')]
  text = f'{folder}: {len(sizes)} files, {bounds.gib(sum(sizes))}'
  yield from _disk(name, folder, text)


def _folder(name):
  folder = os.getcwd()
  if os.access(folder, os.W_OK):
    yield from _disk(name, folder, folder)
  else:
    remedy = 'give --workdir a folder that you may write to'
    yield Finding(name, f'{folder} is read-only', MISSING, remedy)


def _disk(name, folder, text):
  free = shutil.disk_usage(folder).free
  text = f'{text}, {bounds.gib(free)} of disk free'
  if free < LEAST_DISK:
    yield Finding(name, text, BROKEN, 'free a gibibyte or more')
  else:
    yield Finding(name, text)


def _port(name):
  with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
      probe.bind(('127.0.0.1', PORT))
    except OSError as error:
      text = f'{PORT}: {os.strerror(error.errno or 0)}'
      yield Finding(name, text, MISSING, 'launch.serve --port takes another')
      return
  yield Finding(name, f'{PORT} is free')


def _numbers(name):
  """A recurrence and a product, as `auto` runs them, with float64."""
  recurrence, product = 'native', 'native'
  if library.lacking():
    recurrence, product = 'chunked', 'plain'
  shape = products_check.SHAPES[1]
  case = base.Case(product, *shape, dtype='int8', op=products_check.OP)
  results = (
    gla_check.check(base.Case(recurrence, 17, 8, 5)),
    products_check.check(case),
  )
  text = ', '.join(
    f'{result.case.op} {result.case.impl}: error {result.error:.0e}'
    for result in results
  )
  if all(result.passed for result in results):
    yield Finding(name, text)
  else:
    remedy = 'run launch.selfcheck, and report what it prints'
    yield Finding(name, text, BROKEN, remedy)


PROBES: dict[str, Callable[[str], Iterator[Finding]]] = {
  'rnn_jax': _project,
  'python': _python,
  'packages': _packages,
  'extras': _extras,
  'processor': _processor,
  'devices': _devices,
  'C++': _library,
  'programs': _programs,
  'folder': _folder,
  'port': _port,
  'numbers': _numbers,
}


def _requirements():
  given = importlib.metadata.requires(NAME) or []
  return [requirements.Requirement(x) for x in given]


def _installed(name):
  """Returns a package's version, or None."""
  try:
    return versions.Version(importlib.metadata.version(name))
  except importlib.metadata.PackageNotFoundError:
    return None
