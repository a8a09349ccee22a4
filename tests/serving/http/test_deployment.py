"""The systemd unit and the Kubernetes manifests of docs/serving.md."""

import configparser
import re
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from rnn_jax.serving import states
from rnn_jax.serving.http import app as app_lib
from tests.support import launchers
from tests.support import tiny


def block(language):
  """The one example of docs/serving.md in a language."""
  text = (tiny.ROOT / 'docs/serving.md').read_text()
  (example,) = re.findall(rf'```{language}\n(.*?)```', text, re.DOTALL)
  return example


def read_flags(words):
  """The flags of a command that serves, as it reads them."""
  program, command, *given = words
  assert program.endswith('rnn-jax') and command == 'serve'
  known = launchers.flags_of('serve')
  values = {name: flag.default for name, flag in known.items()}
  for word in given:
    name, _, value = word.removeprefix('--').partition('=')
    values[name] = known[name].parser.parse(value)
  return values


@pytest.fixture(name='unit', scope='module')
def _unit():
  parser = configparser.ConfigParser(interpolation=None)
  parser.optionxform = str
  parser.read_string(block('ini'))
  return parser


def test_the_unit_stops_as_the_server_does(unit):
  service = unit['Service']
  values = read_flags(service['ExecStart'].split())
  assert values['drain_seconds'] < int(service['TimeoutStopSec'])
  stop = signal.Signals[service['KillSignal']]
  assert int(service['SuccessExitStatus']) == 128 + stop
  # With ProtectSystem=strict, all else can only be read.
  writable = f'/var/lib/{service["StateDirectory"]}'
  assert service['Environment'] == f'HOME={writable}'
  assert values['store'].startswith(f'{writable}/')


def test_systemd_knows_all_of_the_unit(tmp_path):
  if shutil.which('systemd-analyze') is None:
    pytest.skip('needs systemd-analyze: apt-get install systemd')
  path = tmp_path / 'rnn_jax.service'
  path.write_text(
    block('ini').replace('/opt/rnn_jax/bin/rnn-jax', sys.executable)
  )
  command = ['systemd-analyze', 'verify', path]
  result = subprocess.run(command, check=True, capture_output=True, text=True)
  assert path.stem not in result.stderr, result.stderr


@pytest.fixture(name='manifests', scope='module')
def _manifests():
  made = {each['kind']: each for each in yaml.safe_load_all(block('yaml'))}
  assert {*made} == {'Deployment', 'Service'}
  return made


def test_a_service_selects_the_pods_of_its_deployment(manifests):
  deployment, service = manifests['Deployment'], manifests['Service']
  assert deployment['apiVersion'] == 'apps/v1' and service['apiVersion'] == 'v1'
  pods = deployment['spec']['template']['metadata']['labels']
  assert deployment['spec']['selector']['matchLabels'].items() <= pods.items()
  assert service['spec']['selector'].items() <= pods.items()


def test_a_pod_runs_a_server_and_asks_how_it_is(manifests, tmp_path):
  pod = manifests['Deployment']['spec']['template']['spec']
  (container,) = pod['containers']
  values = read_flags(container['command'])
  assert values['drain_seconds'] < pod['terminationGracePeriodSeconds']
  names = {each['name'] for each in container['env']}
  assert states.KEY_VARIABLE in names and '://' in values['store']
  (port,) = container['ports']
  (outer,) = manifests['Service']['spec']['ports']
  assert port['containerPort'] == outer['targetPort'] == values['port']
  volumes = {each['name'] for each in pod['volumes']}
  mounts = {x['name']: x['mountPath'] for x in container['volumeMounts']}
  assert {*mounts} == volumes
  assert values['workdir'] == mounts['model']
  assert values['keys_file'].startswith(f'{mounts["keys"]}/')
  assert values['compilation_cache'] == mounts['programs']
  probes = [container[f'{x}Probe']['httpGet'] for x in PROBES]
  assert {probe['port'] for probe in probes} == {values['port']}
  paths = {x.path for x in app_lib.make(Unasked()).routes}
  assert {probe['path'] for probe in probes} <= paths - {'/'}


PROBES = 'readiness', 'liveness', 'startup'


class Unasked:
  """A service whose routes are listed, and not used."""

  stats = stream_stats = None
