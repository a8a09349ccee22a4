"""Serves the model of a run over HTTP, in OpenAI's forms.

    python -m launch.serve --workdir=runs/demo --port=8000
    curl http://127.0.0.1:8000/v1/completions \\
        -H 'Content-Type: application/json' \\
        -d '{"prompt": "def main(", "max_tokens": 50}'

With --adapters=NAME=FOLDER,... a request's "model" chooses one of several runs
that changed this one's model. A run that forecasts series serves /v1/forecast
and /v1/streams. Open http://127.0.0.1:8000/ to write with the model, or to see
its streams. --keys_file names API keys; without them the server is for this
machine only. docs/serving.md has the API, units for systemd and Kubernetes, and
what is safe. SIGTERM and Ctrl-C let the requests that run end, for
--drain_seconds at most.
"""

import functools
import pathlib
import sys
import time

from absl import flags

from launch import command

STARTED = time.monotonic()

PURPOSE = 'Use'
WORKDIR, CHECKPOINT = command.define_run()
WEIGHTS = flags.DEFINE_enum(
  'weights',
  'float32',
  ['float32', 'bfloat16', 'int8', 'int8_blocks', 'int4'],
  'Format of the weights in memory.',
)
STATES = flags.DEFINE_enum(
  'states',
  'float32',
  ['float32', 'bfloat16'],
  'Format of matrix states between two steps.',
)
MODEL_NAME = flags.DEFINE_string(
  'model_name', '', "The model's name for clients. Default: the folder's name."
)
ADAPTERS = flags.DEFINE_list(
  'adapters',
  [],
  'Runs with adapters of the model, as NAME=FOLDER,...; a request chooses one '
  'by its name.',
)
HOST = flags.DEFINE_string(
  'host', '127.0.0.1', 'Address to listen at; 0.0.0.0: all of this machine.'
)
PORT = flags.DEFINE_integer(
  'port', 8000, 'Port to listen at; 0: any free one.', 0, 65535
)
SLOTS = flags.DEFINE_integer('slots', 16, 'Texts that are written at a time.')
QUEUE = flags.DEFINE_integer('queue', 256, 'Requests that may wait.')
READ_SECONDS = flags.DEFINE_float(
  'read_seconds',
  0.05,
  'For prompts between two calls that make tokens, for the share of free '
  'slots; ten times as long while no text is written.',
)
DRAFT_TOKENS = flags.DEFINE_integer(
  'draft_tokens',
  0,
  'Tokens that a text may repeat, checked at a time while few texts are '
  'written; 0: none are.',
)
PREFIX_BYTES = flags.DEFINE_integer(
  'prefix_bytes', 256 * 2**20, 'Of states of prompts kept in memory; 0: none.'
)
STREAMS = flags.DEFINE_integer(
  'streams', 4096, 'Of series, at most, of a model that forecasts.'
)
READINGS = flags.DEFINE_integer(
  'readings', 100_000, 'Of a request, missing ones included, at most.'
)
KEYS_FILE = flags.DEFINE_string(
  'keys_file',
  None,
  'File of API keys, NAME KEY per line. Default: $RNN_JAX_API_KEYS.',
)
ALLOW_ANONYMOUS = flags.DEFINE_boolean(
  'allow_anonymous', False, 'Serve other machines without keys.'
)
ALLOWED_HOSTS = flags.DEFINE_list(
  'allowed_hosts', [], 'Names of this server, without keys; *: any.'
)
CORS = flags.DEFINE_list(
  'cors', [], 'Origins whose pages may use this server, as https://a.example.'
)
STORE = flags.DEFINE_string(
  'store',
  None,
  'Where states are kept: a folder, redis://HOST:PORT/NUMBER, or empty: '
  'nowhere. Default: WORKDIR/states.',
)
STORE_BYTES = flags.DEFINE_integer(
  'store_bytes', 2**30, 'Of the states of one key, at most.'
)
STORE_DAYS = flags.DEFINE_float(
  'store_days', 30.0, 'A state unused for so long is removed; 0: never.'
)
STATE_KEY_FILE = flags.DEFINE_string(
  'state_key_file',
  None,
  'File of the key that signs states. Default: $RNN_JAX_STATE_KEY, else '
  'signing.key in the folder of --store.',
)
BODY_BYTES = flags.DEFINE_integer(
  'body_bytes', 8 * 2**20, 'Of a request, at most.'
)
PROMPT_TOKENS = flags.DEFINE_integer(
  'prompt_tokens', 32_768, 'Of a text that is read, at most.'
)
MAX_NEW_TOKENS = flags.DEFINE_integer(
  'max_new_tokens', 4096, 'Of a text that is written, at most.'
)
REQUEST_SECONDS = flags.DEFINE_float(
  'request_seconds', 300.0, 'From a request to its last token, at most.'
)
KEY_REQUESTS = flags.DEFINE_integer(
  'key_requests', 0, 'Open at once for one key; 0: any number.'
)
DRAIN_SECONDS = flags.DEFINE_float(
  'drain_seconds', 30.0, 'For requests that run when the server is stopped.'
)
ACCESS_LOG = flags.DEFINE_string(
  'access_log', '', 'File for a line of JSON per request; -: stderr.'
)
LOG_TEXTS = flags.DEFINE_boolean(
  'log_texts', False, 'Write prompts and answers to the access log.'
)
LOCAL = ('127.0.0.1', 'localhost', '::1')


def main(_):
  from rnn_jax import errors

  try:
    import prometheus_client  # noqa: F401
    import pydantic  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
  except ModuleNotFoundError as error:
    raise errors.InputError(
      f"{error.name} is missing: run pip install 'rnn_jax[serve]'"
    ) from None
  from rnn_jax.serving.http import access_log
  from rnn_jax.serving.http import app as app_lib
  from rnn_jax.serving.http import auth
  from rnn_jax.serving.http import connections
  from rnn_jax.serving.http import server
  from rnn_jax.system import activity
  from rnn_jax.system import signal_thread

  keys = auth.read(KEYS_FILE.value)
  if HOST.value not in LOCAL and not keys and not ALLOW_ANONYMOUS.value:
    raise errors.InputError(
      f'host={HOST.value!r}: other machines could use the server without a '
      'key: give --keys_file, or --allow_anonymous'
    )
  bound = server.listen(HOST.value, PORT.value)
  log = access_log.AccessLog(ACCESS_LOG.value, LOG_TEXTS.value)
  connections.available()  # refused before the model is loaded
  service = _service(keys)
  hosts = [*ALLOWED_HOSTS.value, HOST.value]
  if ALLOW_ANONYMOUS.value and not ALLOWED_HOSTS.value:
    hosts.append('*')
  app = app_lib.make(service, log, hosts, CORS.value)
  with (
    server.Stop(service, DRAIN_SECONDS.value) as stop,
    service.running(DRAIN_SECONDS.value),
    activity.waiting(),
  ):
    patience = server.patience(service.options.limits)
    announce = functools.partial(_announce, service, bound)
    server.run(app, bound, announce, patience, stop)
  sys.exit(signal_thread.exit_code(stop.name))


def _service(keys):
  from rnn_jax.inference import model as model_lib
  from rnn_jax.serving import engine
  from rnn_jax.serving import records
  from rnn_jax.serving import states
  from rnn_jax.serving import store as store_lib
  from rnn_jax.serving import streams as streams_lib
  from rnn_jax.serving.http import service as service_lib

  engine_options = engine.Options(
    slots=SLOTS.value,
    queue=QUEUE.value,
    read_seconds=READ_SECONDS.value,
    prefix_bytes=PREFIX_BYTES.value,
    draft_tokens=DRAFT_TOKENS.value,
  )
  workdir = pathlib.Path(WORKDIR.value)
  load = functools.partial(
    model_lib.load,
    workdir,
    weights=WEIGHTS.value,
    batch_invariant=True,
    states=STATES.value,
  )
  model = load(CHECKPOINT.value)
  place = STORE.value
  if place is None:
    place = str(workdir / 'states')
  limits = service_lib.Limits(
    body_bytes=BODY_BYTES.value,
    prompt_tokens=PROMPT_TOKENS.value,
    new_tokens=MAX_NEW_TOKENS.value,
    seconds=REQUEST_SECONDS.value,
    owner_requests=KEY_REQUESTS.value,
  )
  store, state_key = None, b''
  streams = streams_lib.Options(
    STREAMS.value, 2 * STREAMS.value, READINGS.value
  )
  if place and model.bundle.config.task.reads_series:
    store = store_lib.open_streams(place)
  elif place:
    kept = records.Limits(STORE_BYTES.value, STORE_DAYS.value)
    state_key = states.read_key(STATE_KEY_FILE.value, place)
    store = store_lib.open_store(place, kept)
  elif STATE_KEY_FILE.value:
    state_key = states.read_key(STATE_KEY_FILE.value, place)
  options = service_lib.Options(
    MODEL_NAME.value or workdir.resolve().name,
    limits,
    state_key,
    functools.partial(_read_adapters, _folders(ADAPTERS.value)),
    streams,
  )
  return service_lib.Service(model, options, engine_options, store, keys, load)


def _folders(given):
  """Returns the folders of adapters by name."""
  from rnn_jax import errors

  folders = {}
  for each in given:
    name, equals, folder = each.partition('=')
    if not (name and equals and folder) or name in folders:
      errors.refuse(
        '--adapters', each, 'give NAME=FOLDER,..., each name only once'
      )
    folders[name] = folder
  return folders


def _read_adapters(folders, model):
  """Returns the adapters of a model, by name."""
  from rnn_jax.runs import adapter

  return {
    name: adapter.read(folder, 'best', WORKDIR.value, model.bundle)
    for name, folder in folders.items()
  }


def _announce(service, bound):
  host, port = bound.getsockname()[:2]
  host = f'[{host}]' if ':' in host else host
  print(
    f'{service.options.name} is ready at http://{host}:{port}/ after '
    f'{time.monotonic() - STARTED:.1f} s',
    flush=True,
  )


if __name__ == '__main__':
  command.run(main)
