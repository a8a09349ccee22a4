"""A kept run answers: its model, a server, an evaluation, its last step."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import rnn_jax
from rnn_jax import config as config_lib
from rnn_jax.inference import model as model_lib
from rnn_jax.runs import metrics
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.serving import engine
from rnn_jax.serving.http import service as service_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.kept_runs import kinds
from tests.serving.http import served

ROOT = pathlib.Path(__file__).parent  # has a folder for each version


def of(name: str, folder: pathlib.Path) -> dict[str, Any]:
  """Returns all answers of a kind's run in a folder, which stays as it is."""
  with tempfile.TemporaryDirectory() as copy:
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    with contextlib.chdir(copy):
      return _of(name, kinds.KINDS[name])


def _of(name, kind):
  model = rnn_jax.load(name, weights=kind.weights or 'float32')
  found = {'asked': kind.ask(model)}
  if kind.served:
    with _served(model) as post:
      found['served'] = kind.served(post)
  found['evaluated'] = evaluate.Run.open(name).evaluate('test')
  if not kind.weights:
    found['resumed'] = _resumed(name)
  return found


def _resumed(name):
  """The losses of the last step."""
  config = config_lib.parse(workdir_lib.load_config(name))
  assert loop.train(config, name).finished == 'all steps'
  return {row['split']: row['loss'] for row in metrics.read(name)}


@contextlib.contextmanager
def _served(model: model_lib.Model) -> Iterator[kinds.Post]:
  """Yields what posts to a server of the model, without a socket."""
  options = service_lib.Options('kept')
  small = engine.Options(slots=1, steps=4, chunks=(16,), queue=4)
  with (
    service_lib.Service(model, options, small).running(0.0) as service,
    served.client(service) as client,
  ):

    def post(path, body):
      response = client.post(path, json=body)
      assert response.status_code == 200, response.text
      return response.json()

    yield post
