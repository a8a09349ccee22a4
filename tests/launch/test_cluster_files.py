"""The files that start a job on several hosts: what their schedulers read.

Of a JobSet, the fields that its custom resource definition requires
(jobset.x-k8s.io/v1alpha2) and those of a Job's pods (Kubernetes API, batch/v1
and core/v1); of a batch script, the options of sbatch 22.05.
"""

import re
import shlex
import subprocess

import pytest
import yaml

from rnn_jax.parallel import clusters
from tests.support import launchers
from tests.support import tiny

FOLDER = tiny.ROOT / 'docs' / 'cluster'
NAME = re.compile('[a-z]([-a-z0-9]*[a-z0-9])?')  # of DNS, RFC 1035
SBATCH = {
  'job-name': r'\w+',
  'nodes': r'\d+',
  'ntasks-per-node': r'\d+',
  'gpus-per-node': r'\d+',
  'cpus-per-task': r'\d+',
  'time': r'(\d+-)?\d+:\d\d:\d\d',
  'signal': r'(B:)?[A-Z]+(@\d+)?',
  'requeue': None,
  'open-mode': 'append|truncate',
}


@pytest.fixture(name='jobset')
def _jobset():
  return yaml.safe_load((FOLDER / 'jobset.yaml').read_text())


@pytest.fixture(name='script')
def _script():
  return (FOLDER / 'train.sbatch').read_text()


def flags_of(arguments):
  """Returns {flag: value}, each of which launch.train has."""
  given = dict(x.removeprefix('--').split('=', 1) for x in arguments)
  assert {*given} == {'config', 'workdir', 'cluster'}
  assert {*given} <= {*launchers.flags_of('train')}
  assert (tiny.ROOT / given['config']).exists()
  return given


def test_a_jobset_has_what_its_definition_requires(jobset):
  assert jobset['apiVersion'] == 'jobset.x-k8s.io/v1alpha2'
  assert jobset['kind'] == 'JobSet'
  assert set(jobset['spec']) <= {'failurePolicy', 'network', 'replicatedJobs'}
  assert jobset['spec']['failurePolicy']['maxRestarts'] > 0
  (group,) = jobset['spec']['replicatedJobs']
  assert set(group) == {'name', 'replicas', 'template'}
  assert NAME.fullmatch(group['name'])
  assert NAME.fullmatch(jobset['metadata']['name'])
  job = group['template']['spec']
  # A Job's pods may not restart in place, or the others would hang.
  assert job['template']['spec']['restartPolicy'] == 'Never'
  assert job['backoffLimit'] == 0
  assert job['parallelism'] == job['completions']
  (container,) = job['template']['spec']['containers']
  assert {'name', 'image', 'command', 'args'} <= {*container}
  mounted = {x['name'] for x in container['volumeMounts']}
  assert mounted == {x['name'] for x in job['template']['spec']['volumes']}


def test_pods_of_a_jobset_find_each_other(jobset):
  name = jobset['metadata']['name']
  (group,) = jobset['spec']['replicatedJobs']
  job = group['template']['spec']
  assert job['completionMode'] == 'Indexed'  # the index of a process
  (container,) = job['template']['spec']['containers']
  assert flags_of(container['args'])['cluster'] == 'env'
  variables = {x['name']: x for x in container['env']}
  assert set(variables) == {*clusters.VARIABLES['env']}
  host, port = variables['JAX_COORDINATOR_ADDRESS']['value'].split(':')
  # <jobset>-<group>-<replica>-<pod>.<jobset>
  assert host == f'{name}-{group["name"]}-0-0.{name}'
  assert int(port) in {x['containerPort'] for x in container['ports']}
  assert int(variables['JAX_NUM_PROCESSES']['value']) == job['completions']
  index = variables['JAX_PROCESS_ID']['valueFrom']['fieldRef']['fieldPath']
  assert index == (
    "metadata.annotations['batch.kubernetes.io/job-completion-index']"
  )


def test_a_batch_script_has_options_of_sbatch(script):
  subprocess.run(['bash', '-n'], input=script, text=True, check=True)
  options = re.findall(r'^#SBATCH --([\w-]+)(?:=(\S+))?$', script, re.MULTILINE)
  assert len(options) == script.count('#SBATCH')
  for name, value in options:
    if SBATCH[name]:
      assert re.fullmatch(SBATCH[name], value), name
    else:
      assert not value, name
  last_option = script.rindex('#SBATCH')
  assert last_option < script.index('\n\n')  # sbatch stops at a command


def test_a_batch_script_trains_with_as_many_tasks_as_gpus(script):
  options = dict(
    re.findall(r'^#SBATCH --([\w-]+)=(\S+)$', script, re.MULTILINE)
  )
  assert options['ntasks-per-node'] == options['gpus-per-node']
  command = script[script.index('srun') :].replace('\\\n', '')
  _, kill, python, module, name, *arguments = shlex.split(command)
  assert (kill, python) == ('--kill-on-bad-exit=1', 'python')
  assert (module, name) == ('-m', 'launch.train')
  assert flags_of(arguments)['cluster'] == 'slurm'
