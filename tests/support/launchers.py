"""Launchers in this process: no second start of Python, JAX and the package.

`run` returns what `tiny.finish(tiny.launch(...))` does. Signals, kills and
closed pipes need the process that `tiny.launch` starts; test_command.py starts
each launcher by it. Several hosts are `jobs.Process`es.
"""

import contextlib
import importlib.util
import io
import logging as python_logging
import os
import sys
import traceback
import types
import warnings
from unittest import mock

import jax
from absl import app
from absl import flags
from absl import logging
from absl.testing import flagsaver
from jax.experimental.compilation_cache import compilation_cache

from launch import command
from launch import hosts
from rnn_jax import config as config_lib
from tests.support import tiny

SHARED = command.__name__, hosts.__name__


def run(name, *arguments, stdin=''):
  """Runs `python -m launch.<name>`. Returns (exit code, stdout, stderr)."""
  return run_file(tiny.ROOT / 'launch' / f'{name}.py', *arguments, stdin=stdin)


def parse(name, *arguments):
  """Reads a command line as `python -m launch.<name>` does, and runs nothing.

  The config that it names is parsed, too. Returns (exit code, stdout, stderr).
  """

  def read(main, **options):
    del main, options
    command._parse(sys.argv)
    raw = flags.FLAGS['config'].value if 'config' in flags.FLAGS else None
    if raw is not None:
      with command._one_line_errors():
        config_lib.parse(raw)

  with mock.patch.object(command, 'run', read):
    return run(name, *arguments)


def flags_of(name):
  """Returns {name: flag} of what `python -m launch.<name>` defines.

  No test imports a launcher by itself: two define flags of the same names.
  """
  path = tiny.ROOT / 'launch' / f'{name}.py'
  module = types.ModuleType(f'launch.{name}')
  with _flags():
    before = {*flags.FLAGS}
    exec(compile(path.read_text(), path, 'exec'), module.__dict__)
    by_module = flags.FLAGS.flags_by_module_dict()
    shared = {flag.name for known in SHARED for flag in by_module[known]}
    added = {*flags.FLAGS} - before
    return {flag: flags.FLAGS[flag] for flag in added | shared}


def run_file(path, *arguments, stdin='', folder=tiny.ROOT):
  """Runs a launcher that is a file, in a folder. Returns as `run` does."""
  main = types.ModuleType('__main__')
  main.__file__ = str(path)
  main.__spec__ = importlib.util.spec_from_file_location('__main__', path)
  argv = [str(path), *map(str, arguments)]
  out, err = _text_stream(), _text_stream()
  with (
    _flags(),
    _logging(err),
    jax_config(),
    mock.patch.dict(os.environ),
    # Its settings of malloc would hold for the tests that follow.
    mock.patch.object(command, '_keep_memory', lambda: None),
    mock.patch.object(sys, 'argv', argv),
    mock.patch.object(sys, 'path', [*sys.path]),
    mock.patch.object(sys, 'stdin', _text_stream(stdin.encode())),
    contextlib.chdir(folder),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    warnings.catch_warnings(),
    _as_main(main),
  ):
    # As Python itself: pytest shows what users don't see.
    warnings.simplefilter('ignore', DeprecationWarning)
    code = compile(path.read_text(encoding='utf-8'), path, 'exec')
    status = _exit_status(lambda: exec(code, main.__dict__))
  for stream in (out, err):
    stream.flush()
  texts = (stream.buffer.getvalue().decode() for stream in (out, err))
  return status, *texts


def _text_stream(content=b''):
  return io.TextIOWrapper(io.BytesIO(content), 'utf-8')


def _exit_status(program):
  """Runs it as Python does: how it ends becomes an exit code."""
  try:
    program()
  except SystemExit as end:
    if isinstance(end.code, str):
      print(end.code, file=sys.stderr)
      return 1
    return int(end.code or 0)
  except Exception:
    traceback.print_exc()
    return 1
  return 0


@contextlib.contextmanager
def _flags():
  """absl's flags are as at the start of a process, and afterwards as before.

  Programs define flags of the same names: those of programs that tests have
  imported are set aside.
  """
  imported = {*sys.modules}
  tables = (
    flags.FLAGS._flags(),
    flags.FLAGS.flags_by_module_dict(),
    flags.FLAGS.flags_by_module_id_dict(),
    flags.FLAGS.key_flags_by_module_dict(),
  )
  kept = [_copy(table) for table in tables]
  values = flagsaver.save_flag_values()
  for module, own in _copy(tables[1]).items():
    if module.startswith(('launch.', 'benchmarks.')) and module not in SHARED:
      for flag in own:
        delattr(flags.FLAGS, flag.name)
  for name in flags.FLAGS:
    flags.FLAGS[name].unparse()
  flags.FLAGS.unparse_flags()
  parsing = app._register_and_parse_flags_with_usage
  try:
    with (
      mock.patch.object(app._run_init, 'done', False),
      mock.patch.object(parsing, 'done', False),
      mock.patch.object(app, '_define_help_flags_called', False),
    ):
      yield
  finally:
    # Libraries that were imported for the first time keep their flags. What
    # others defined by now is the launcher's: its own flags, help, config.KEY.
    added = [
      (module, flag)
      for module, own in _copy(tables[1]).items()
      if module in sys.modules and module not in imported
      for flag in own
    ]
    for table, before in zip(tables, kept, strict=True):
      table.clear()
      table.update(before)
    for module, flag in added:
      flags.FLAGS[flag.name] = flag
      flags.FLAGS.register_flag_by_module(module, flag)
      flags.FLAGS.register_flag_by_module_id(id(sys.modules[module]), flag)
      values[flag.name] = vars(flag)
    flagsaver.restore_flag_values(values)
    flags.FLAGS.mark_as_parsed()


def _copy(table):
  return {k: [*x] if isinstance(x, list) else x for k, x in table.items()}


@contextlib.contextmanager
def _logging(stream):
  """absl logs to the stream, and afterwards as before."""
  handler, root = logging.get_absl_handler(), python_logging.root
  python = handler.python_handler
  before = python.stream, python.formatter, root.handlers[:], root.level
  verbosity = logging.get_verbosity()
  python.setStream(stream)
  try:
    yield
  finally:
    python.setStream(before[0])
    handler.setFormatter(before[1])
    root.handlers[:] = before[2]
    logging.set_verbosity(verbosity)
    root.setLevel(before[3])


@contextlib.contextmanager
def jax_config():
  """What a launcher sets of JAX's config holds for it only."""
  before = dict(jax.config.values)
  try:
    yield
  finally:
    changed = {k for k, v in before.items() if jax.config.values[k] != v}
    for name in changed:
      jax.config.update(name, before[name])
    if 'jax_compilation_cache_dir' in changed:
      compilation_cache.reset_cache()


@contextlib.contextmanager
def _as_main(module):
  before = sys.modules['__main__']
  sys.modules['__main__'] = module
  try:
    yield
  finally:
    sys.modules['__main__'] = before
