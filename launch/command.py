"""What all launchers share: start-up, and errors that read as one line.

    if __name__ == '__main__':
      command.run(main)

Import jax and rnn_jax's modules inside `main`: --help and a mistyped flag then
answer at once, and so do worker processes, which import the launcher again.
"""

import contextlib
import ctypes
import hashlib
import logging as python_logging
import os
import pathlib
import platform
import re
import stat
import sys

from absl import app
from absl import flags
from absl import logging

from rnn_jax import errors

COMPILATION_CACHE = flags.DEFINE_string(
  'compilation_cache',
  None,
  'Folder where compiled programs are kept for the next start; empty: none. '
  'Default: $JAX_COMPILATION_CACHE_DIR, else one in ~/.cache/rnn_jax.',
)
MEMORY_FRACTION = flags.DEFINE_float(
  'memory_fraction', None, "Share of a GPU's memory to use, in (0, 1]."
)
PREALLOCATE = flags.DEFINE_bool(
  'preallocate', None, "Take a GPU's memory at the start, not as needed."
)
CPUS = flags.DEFINE_string(
  'cpus', None, 'CPUs to run on, as in 0-3,8. Default: all that there are.'
)

INTERRUPTED = 130  # 128 + SIGINT, as shells count
PIPE_CLOSED = 141  # 128 + SIGPIPE
HELP = {'-h', '-help', '--help', '-?'}
GPUS = '/dev/nvidiactl', '/dev/kfd', '/dev/dxg'  # NVIDIA, AMD, under Windows
# mallopt(3): what XLA's CPU client allocates anew at each step stays with the
# process; to fetch it from the kernel again costs a page fault for each 4 KiB.
MALLOC_OPTIONS = (
  (-3, 1 << 30),  # M_MMAP_THRESHOLD
  (-1, (1 << 31) - 1),  # M_TRIM_THRESHOLD
  (-8, 1),  # M_ARENA_MAX
  (-2, 1 << 28),  # M_TOP_PAD
)


def run(main):
  """Parses flags, runs `main(argv)` and exits the process.

  What the user can mend, an InputError or a wrong flag, becomes one line on
  stderr and exit code 1. Data is put on a device explicitly or not at all.
  """
  _keep_memory()
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  with _one_line_errors():
    app.run(_started(main), flags_parser=_parse)


def _started(main):
  def guarded(argv):
    with _one_line_errors():
      _settle_memory()
      _settle_cpus()
    import jax

    if not flags.FLAGS['verbosity'].present:
      logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().setFormatter(
      python_logging.Formatter('%(levelname)s: %(message)s')
    )
    jax.config.update('jax_transfer_guard', 'disallow')
    _keep_programs(jax)
    with _one_line_errors():
      return main(argv)

  return guarded


def _settle_memory():
  """Hands the memory flags to XLA, which reads them when it finds a GPU.

  Raises:
    InputError: a flag without use here, or a share that is none.
  """
  share = MEMORY_FRACTION.value
  for flag in (MEMORY_FRACTION, PREALLOCATE):
    if flag.value is not None and not any(map(os.path.exists, GPUS)):
      raise errors.InputError(
        f'--{flag.name}={flag.value}: it is about the memory of a GPU, and '
        'there is none: leave it out'
      )
  if share is not None:
    if not 0 < share <= 1:
      raise errors.InputError(
        f'--memory_fraction={share}: give a share in (0, 1]'
      )
    # Both names in one environment are an error.
    os.environ.pop('XLA_PYTHON_CLIENT_MEM_FRACTION', None)
    os.environ['XLA_CLIENT_MEM_FRACTION'] = str(share)
  if PREALLOCATE.value is not None:
    text = str(PREALLOCATE.value).lower()
    os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = text


def _settle_cpus():
  """Confines the process to --cpus; the threads that it starts inherit that.

  Raises:
    InputError: a CPU that it can't run on, or no list of CPUs.
  """
  if CPUS.value is None:
    return
  flag = f'--cpus={CPUS.value}'
  if not hasattr(os, 'sched_setaffinity'):
    raise errors.InputError(f'{flag}: this system has no such setting')
  if not re.fullmatch(r'(\d{1,4}(-\d{1,4})?(,(?!$)|$))+', CPUS.value):
    raise errors.InputError(f'{flag}: give numbers and ranges, as in 0-3,8')
  chosen = set()
  for part in CPUS.value.split(','):
    first, _, last = part.partition('-')
    chosen |= {*range(int(first), int(last or first) + 1)}
  allowed = os.sched_getaffinity(0)
  if not chosen:
    raise errors.InputError(f'{flag}: no CPU is in it: give 0-3, not 3-0')
  if absent := ', '.join(map(str, sorted(chosen - allowed))):
    raise errors.InputError(
      f'{flag}: CPU {absent} is not there: choose of {sorted(allowed)}'
    )
  for thread in pathlib.Path('/proc/self/task').iterdir():
    os.sched_setaffinity(int(thread.name), chosen)


def _keep_programs(jax):
  """Turns the persistent cache of compiled programs on, unless refused."""
  folder = COMPILATION_CACHE.value
  if folder is None:
    folder = jax.config.jax_compilation_cache_dir
  if folder is None:
    folder = _own_cache(jax.lib.__version__)
  jax.config.update('jax_compilation_cache_dir', folder or None)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.3)


def _own_cache(version):
  """Returns the user's folder of programs for this processor; '': none.

  A home may be shared by machines whose processors differ, and a program is
  code: one that another user can write is not run.
  """
  home = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  name = f'jaxlib-{version}-{_processor()}'
  folder = pathlib.Path(home, 'rnn_jax', name)
  try:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
  except OSError:
    return ''  # a home that is read-only, or none
  if not hasattr(os, 'getuid'):
    return str(folder)
  if (
    stat.S_ISDIR(found.st_mode)
    and found.st_uid == os.getuid()
    and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
  ):
    return str(folder)
  logging.warning(
    'no compiled programs are kept: others can write %s: delete it, or name '
    'a folder with --compilation_cache',
    folder,
  )
  return ''


def _processor():
  """A digest of what a program may rely on: the kind of CPU, its features."""
  names = [platform.machine(), platform.processor()]
  with contextlib.suppress(OSError):
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith(('model name', 'flags', 'Features', 'CPU part')):
        names.append(line)
  text = '\n'.join(sorted(set(names)))
  return hashlib.sha256(text.encode()).hexdigest()[:12]


def _keep_memory():
  """Has glibc keep freed memory; other C libraries are left alone."""
  if platform.libc_ver()[0] != 'glibc':
    return
  with contextlib.suppress(OSError, AttributeError):
    libc = ctypes.CDLL('libc.so.6')
    for option, value in MALLOC_OPTIONS:
      libc.mallopt(option, value)


@contextlib.contextmanager
def _one_line_errors():
  try:
    yield
  except errors.InputError as error:
    _fail(str(error))
  except KeyboardInterrupt:
    sys.exit(INTERRUPTED)
  except BrokenPipeError:
    # Python flushes stdout once more on its way out.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(PIPE_CLOSED)


def _fail(message):
  print(f'error: {message}', file=sys.stderr)
  sys.exit(1)


def _parse(argv):
  """Returns what is left of argv; a config file is loaded on the way."""
  if HELP & set(argv[1:]):
    app.usage(shorthelp=True, writeto_stdout=True)
    sys.exit(0)
  try:
    rest = flags.FLAGS(argv)
    for name in flags.FLAGS:
      # A config file that can't be read says so when its value is touched.
      hasattr(flags.FLAGS[name].value, 'keys')
  except flags.Error as error:
    _fail(_flag_error(str(error)))
  except Exception as error:
    _fail(_config_error(error, argv[1:]))
  if len(rest) > 1:
    _fail(f'unexpected argument {rest[1]!r}: flags begin with --')
  return rest


def _flag_error(message):
  if missing := re.search('Flag --(.*) must have a value other', message):
    return f'--{missing[1]} is missing: see --help'
  if early := re.search(r"Unknown command line flag '(\w+)\..*'", message):
    if early[1] in flags.FLAGS:
      return f'--{early[1]}=FILE is missing: see --help'
  lines = message.strip().splitlines()
  # A config file's own error comes with its traceback.
  return ' '.join(lines if len(lines) < 3 else [lines[0], lines[-1]])


def _config_error(error, argv):
  """One line on what came out of loading a config and overriding its keys."""
  text = str(error)
  if isinstance(error, (AttributeError, KeyError)):
    wrong = re.search(r'instead of \W*(\w+)', text)
    wrong = wrong or re.search(r'(\w+)', text)
    paths = [a.lstrip('-').partition('=')[0].split('.')[1:] for a in argv]
    path = next((p for p in paths if wrong and wrong[1] in p), None)
    close = re.search(r'Did you mean \W*(\w+)', text)
    if path or close:
      key = '.'.join(path) if path else wrong[1]
      remedy = f'did you mean {close[1]!r}?' if close else 'see the config file'
      return f'unknown config key {key}: {remedy}'
  last = (text.strip().splitlines() or [''])[-1].strip()
  if isinstance(error, OSError):
    return '--config: ' + re.sub(r'^.*\[Errno \d+\] ', '', last)
  return f'--config: {type(error).__name__}: {last}'
