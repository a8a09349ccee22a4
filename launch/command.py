"""What all launchers share: start-up, and errors that read as one line.

    if __name__ == '__main__':
      command.run(main)

A command's PURPOSE, one of rnn_jax.command_line.PURPOSES, is where `rnn-jax`
lists it; the first paragraph of its docstring is what the list says.

Import jax and rnn_jax's modules inside `main`: --help and a mistyped flag then
answer at once, and worker processes, which import the launcher again, start
quickly.
"""

import contextlib
import copy
import ctypes
import importlib
import logging as python_logging
import os
import pathlib
import platform
import re
import sys

from absl import app
from absl import flags
from absl import logging

from launch import usage
from rnn_jax import command_line
from rnn_jax import errors
from rnn_jax.system import activity
from rnn_jax.system import compile_cache
from rnn_jax.system import environment
from rnn_jax.system import gpu_memory
from rnn_jax.system import shipped
from rnn_jax.system import signal_thread
from rnn_jax.system import streams
from rnn_jax.system import supported

HEADING = 'Common flags'
COMPILATION_CACHE = flags.DEFINE_string(
  'compilation_cache',
  None,
  'Folder for compiled programs, reused at the next start; empty: no cache. '
  'Default: $JAX_COMPILATION_CACHE_DIR, else a folder in ~/.cache/rnn_jax.',
)
MEMORY_FRACTION = flags.DEFINE_float(
  'memory_fraction', None, "Fraction of a GPU's memory to use, in (0, 1]."
)
PREALLOCATE = flags.DEFINE_bool(
  'preallocate', None, "Allocate a GPU's memory at startup, not as needed."
)
CPUS = flags.DEFINE_string(
  'cpus', None, 'CPUs to run on, e.g. 0-3,8. Default: all of them.'
)

MODULES = flags.DEFINE_list(
  'modules',
  [],
  'Your modules to import first: those that the config of a run names.',
)

INTERRUPTED = 130  # 128 + SIGINT, as shells count
DEFECT = (
  'This is a defect of rnn_jax, not of what you gave it: please report it '
  'with all that follows.'
)
HELP = {'-h', '-?', '-help', '--help', '-helpshort', '--helpshort'}
HELP_FULL = {'-helpfull', '--helpfull'}
QUIET = 'RNN_JAX_QUIET'  # the variable that silences `activity`
GPUS = '/dev/nvidiactl', '/dev/kfd', '/dev/dxg'  # NVIDIA, AMD, WSL
# mallopt(3): XLA's CPU client allocates its buffers again at each step. Keep
# freed memory: fetching it from the kernel costs a page fault for each 4 KiB.
MALLOC_OPTIONS = (
  (-3, 1 << 30),  # M_MMAP_THRESHOLD
  (-1, (1 << 31) - 1),  # M_TRIM_THRESHOLD
  (-8, 1),  # M_ARENA_MAX
  (-2, 1 << 28),  # M_TOP_PAD
)

flags.disclaim_key_flags()  # define_config's flag belongs to its caller


def define_run():
  """Defines --workdir and --checkpoint of a trained run; returns both."""
  return (
    flags.DEFINE_string('workdir', None, 'Folder of the run.', required=True),
    flags.DEFINE_string(
      'checkpoint', 'best', "'best', 'latest' or a step number."
    ),
  )


def define_config(
  help_text='A name, as stdlib_bytes, or a file; each of its keys is a flag '
  'too.',
  prepare=None,
  required=False,
):
  """Defines --config, a config file, each key of which is a flag too.

  A key that names a part, as --config.optimizer.name=lion, brings the part's
  own keys, wherever it is in the command line.

  Args:
    help_text: what --help says.
    prepare: of (the config, {key: text} of the flags of its keys), changes the
      config before these flags do.
    required: whether the command can't do without.

  Returns:
    The flag's holder.
  """
  from ml_collections.config_flags import config_flags

  class Parser(config_flags.ConfigFileFlagParser):
    """Reads a config file and names the parts that flags name."""

    def parse(self, path):
      if not path:
        return super().parse(path)
      name, colon, argument = path.partition(':')
      name = shipped.find('--config', name)
      _check_is_python(path, name)
      see_current_folder()  # for what the config or its parts import
      return _name_parts(super().parse(name + colon + argument), prepare)

  holder = config_flags.DEFINE_config_file(
    'config', None, help_text, flag_values=flags.FLAGS
  )
  flags.FLAGS['config'].parser = Parser('config')
  if required:
    flags.mark_flag_as_required('config')
  return holder


def ahead(*holders):
  """Returns the flags' values before absl has read the whole command line."""
  values = flags.FlagValues()
  values.set_gnu_getopt()
  for holder in holders:
    values[holder.name] = copy.deepcopy(flags.FLAGS[holder.name])
  values(sys.argv, known_only=True)
  return [values[holder.name].value for holder in holders]


def config_given():
  """Returns (the path in --config or '', {key: value} of its other flags)."""
  from ml_collections.config_flags import config_flags

  flag = flags.FLAGS['config']
  if flag.value is None:
    return '', {}
  path = config_flags.get_config_filename(flag)
  return path, dict(config_flags.get_override_values(flag))


def _check_is_python(path, name):
  """Refuses what isn't a Python file: the parser would execute it."""
  if not name.endswith('.py'):
    record = os.path.basename(name) == 'config.json'
    remedy = (
      f'--workdir={os.path.dirname(name)!r} opens that run'
      if record
      else f'give one of {shipped.names()}, or a file of your own'
    )
    raise errors.InputError(
      f'--config={path!r}: a config is a Python file, *.py: {remedy}'
    )


def see_current_folder():
  """Lets the user's modules be imported; they never hide another one."""
  with contextlib.suppress(FileNotFoundError):  # it was deleted
    if '' not in sys.path and os.getcwd() not in sys.path:
      sys.path.append(os.getcwd())


def _name_parts(config, prepare):
  from rnn_jax.config import config_file

  if not isinstance(config, config_file.Root):
    return config
  given = {key: value for key, value in _config_flags() if '.' in key}
  if prepare:
    prepare(config, given)
  config_file.name_parts(config, given)
  return config


def _config_flags():
  """Yields (key, value) of --config.key=value in the command line."""
  for n, text in enumerate(sys.argv):
    flag, equals, value = text.partition('=')
    if match := re.fullmatch(r'--?config\.([\w.]+)', flag):
      after = sys.argv[n + 1] if n + 1 < len(sys.argv) else ''
      yield match[1], value if equals else after


def run(main, *, keeps_memory=True):
  """Parses flags, runs `main(argv)` and exits the process.

  An error that the user can fix (an InputError, a wrong flag, a full disk)
  becomes one line on stderr and exit code 1; any other one is a defect, and
  its traceback begins with a sentence that says so. Implicit transfers to a
  device are errors. What can't be printed is dropped, see streams.py; a command
  whose result is what it prints calls `stdout_is_the_result` first.

  Args:
    main: the command.
    keeps_memory: whether the process keeps what it frees, for the next step;
      False: the command takes no steps.
  """
  try:
    supported.check('this command')
  except errors.InputError as error:
    _fail(str(error))
  environment.normalize()
  if keeps_memory:
    _keep_memory()
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  # With jax 0.11, a warning in each Triton kernel prints a stack trace, whose
  # names llvm-symbolizer, where it is installed, looks up for seconds.
  os.environ.setdefault('LLVM_DISABLE_SYMBOLIZATION', '1')
  with (
    streams.guarded(),
    signal_thread.prompt_interrupts(),
    _one_line_errors(),
    _reported(),
  ):
    app.run(_started(main), flags_parser=_parse)


def _reported():
  if os.environ.get(QUIET):
    return contextlib.nullcontext()
  return activity.reported(pathlib.Path(sys.argv[0]).stem)


def _started(main):
  def guarded(argv):
    _pass_memory()
    _pin_to_cpus()
    import jax

    if not flags.FLAGS['verbosity'].present:
      logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().setFormatter(
      python_logging.Formatter('%(levelname)s: %(message)s')
    )
    jax.config.update('jax_transfer_guard', 'disallow')
    compile_cache.keep(COMPILATION_CACHE.value)
    import_modules(MODULES.value)
    return main(argv)

  return guarded


def import_modules(names):
  """Imports the modules of --modules.

  Raises:
    InputError: one can't be imported.
  """
  if names:
    see_current_folder()
  for name in names:
    try:
      importlib.import_module(name)
    except Exception as error:
      raise errors.InputError(
        f'--modules={name}: it cannot be imported, {type(error).__name__}: '
        f'{error}'
      ) from error


def _pass_memory():
  """Passes the memory flags to XLA, which reads them when it finds a GPU.

  The compiler reads the fraction for a --target that isn't attached, too.

  Raises:
    InputError: a memory flag without a GPU, or a fraction outside (0, 1].
  """
  share, attached = MEMORY_FRACTION.value, any(map(os.path.exists, GPUS))
  target = flags.FLAGS['target'].value if 'target' in flags.FLAGS else ''
  for flag, gpu in (
    (MEMORY_FRACTION, attached or target),
    (PREALLOCATE, attached),
  ):
    if flag.value is not None and not gpu:
      raise errors.InputError(
        f"--{flag.name}={flag.value}: the flag sets a GPU's memory, and "
        'there is no GPU here: leave it out'
      )
  if share is not None:
    if not 0 < share <= 1:
      raise errors.InputError(
        f'--memory_fraction={share}: give a fraction in (0, 1]'
      )
    # Both names in one environment are an error.
    os.environ.pop(gpu_memory.FRACTIONS[1], None)
    os.environ.update(gpu_memory.variables(share, os.environ))
  if PREALLOCATE.value is not None:
    text = str(PREALLOCATE.value).lower()
    os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = text


def _pin_to_cpus():
  """Pins the process to --cpus; the threads that it starts inherit that.

  Raises:
    InputError: a CPU that isn't available, or a malformed list.
  """
  if CPUS.value is None:
    return
  flag = f'--cpus={CPUS.value}'
  if not hasattr(os, 'sched_setaffinity'):
    raise errors.InputError(
      f'{flag}: this system has no CPU affinity: leave it out'
    )
  if not re.fullmatch(r'(\d{1,4}(-\d{1,4})?(,(?!$)|$))+', CPUS.value):
    raise errors.InputError(f'{flag}: give numbers and ranges, e.g. 0-3,8')
  chosen = set()
  for part in CPUS.value.split(','):
    first, _, last = part.partition('-')
    chosen |= {*range(int(first), int(last or first) + 1)}
  allowed = os.sched_getaffinity(0)
  if not chosen:
    raise errors.InputError(f'{flag}: the range is empty: give 0-3, not 3-0')
  if absent := ', '.join(map(str, sorted(chosen - allowed))):
    raise errors.InputError(
      f'{flag}: CPU {absent} is not available: choose from {sorted(allowed)}'
    )
  for thread in pathlib.Path('/proc/self/task').iterdir():
    os.sched_setaffinity(int(thread.name), chosen)


def _keep_memory():
  """Makes glibc keep freed memory; does nothing on other C libraries."""
  if platform.libc_ver()[0] != 'glibc':
    return
  with contextlib.suppress(OSError, AttributeError):
    libc = ctypes.CDLL('libc.so.6')
    for option, value in MALLOC_OPTIONS:
      libc.mallopt(option, value)


@contextlib.contextmanager
def _one_line_errors():
  try:
    try:
      yield
    finally:
      sys.stdout.flush()  # the end of a result may be refused, too
  except KeyboardInterrupt:
    sys.exit(INTERRUPTED)
  except streams.ReaderGone:
    sys.exit(command_line.PIPE_CLOSED)
  except Exception as error:
    if line := errors.explain(error):
      _fail(line)
    print(DEFECT, file=sys.stderr)
    raise


def _fail(message):
  print(f'error: {command_line.as_typed(message)}', file=sys.stderr)
  sys.exit(1)


def _parse(argv):
  """Returns the rest of argv after the flags; loads the config file."""
  if 'config' in flags.FLAGS:
    _put_config_first(argv)
  if (HELP | HELP_FULL) & set(argv[1:]):
    streams.stdout_is_the_result()
    every = bool(HELP_FULL & set(argv[1:]))
    print(usage.text(every=every, keys=_config_keys()))
    sys.exit(0)
  try:
    rest = flags.FLAGS(argv)
    for name in flags.FLAGS:
      # Reading the value raises the error of a config file that won't load.
      hasattr(flags.FLAGS[name].value, 'keys')
  except flags.Error as error:
    _fail(_input_error(error) or _flag_error(str(error)))
  except Exception as error:
    _fail(_config_error(error, argv[1:]))
  if len(rest) > 1:
    _fail(f'unexpected argument {rest[1]!r}: flags begin with --')
  return rest


def _config_keys():
  """Returns the keys of the config in --config with their limits, or None."""
  if 'config' not in flags.FLAGS:
    return None
  try:
    (raw,) = ahead(flags.FLAGS['config'])
  except flags.Error:  # a wrong flag or config: help is what was asked for
    return None
  if raw is None:
    return None
  from rnn_jax import config as config_lib

  return config_lib.usage(raw)


def _put_config_first(argv):
  """Puts --config before its keys, which ml_collections needs, in `argv` too.

  It reads sys.argv itself.
  """
  for n, text in enumerate(argv[1:], 1):
    if re.fullmatch('--?config', text):
      moved = argv[n : n + 2]
    elif re.match('--?config=', text):
      moved = [text]
    else:
      continue
    del argv[n : n + len(moved)]
    argv[1:1] = moved
    break
  sys.argv[:] = argv


def _input_error(error):
  """The message of the InputError that led to this one; '': there is none."""
  cause = error.__context__
  message = str(cause) if isinstance(cause, errors.InputError) else ''
  # A config file's own error comes with its traceback.
  return message if '\n' not in message else ''


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
  """One line for an error in loading a config or overriding its keys."""
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
