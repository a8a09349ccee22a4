"""Addresses from flags and variables; nothing connects."""

import pytest

from rnn_jax import errors
from rnn_jax.parallel import clusters

SLURM = {
  'SLURM_JOB_ID': '77',
  'SLURM_PROCID': '3',
  'SLURM_NTASKS': '8',
  'SLURM_STEP_NODELIST': 'node[07-08]',
  'SLURM_LOCALID': '1',
}
MPI = {
  'OMPI_COMM_WORLD_RANK': '1',
  'OMPI_COMM_WORLD_SIZE': '2',
  'OMPI_COMM_WORLD_LOCAL_RANK': '0',
  'OMPI_COMM_WORLD_LOCAL_SIZE': '1',
}
ENV = {
  'JAX_PROCESS_ID': '0',
  'JAX_NUM_PROCESSES': '2',
  'JAX_COORDINATOR_ADDRESS': 'node0:9876',
}


def test_no_flag_is_one_process():
  assert clusters.find('', None, None, '', SLURM | MPI | ENV) is None


def test_flags_give_the_whole_address():
  address = clusters.find('node0:9876', 2, 1, '', {})
  assert address[:3] == ('node0:9876', 2, 1)
  assert address.detection == 'deactivate'
  assert address.device_ids == ()
  assert clusters.find('[::1]:9876', 2, 0, '', {}).coordinator == '[::1]:9876'


@pytest.mark.parametrize(
  ('tasks', 'visible', 'device_ids'),
  (
    ('4(x2)', '0,1,2,3', (1,)),  # each task one of the node's devices
    ('4(x2)', '2', ()),  # Slurm has given it one already
    ('1(x8)', '0,1,2,3', ()),  # one task per node: all of them
    ('2,1', '0,1', (1,)),
  ),
)
def test_slurm(tasks, visible, device_ids):
  variables = {
    'SLURM_STEP_TASKS_PER_NODE': tasks,
    'CUDA_VISIBLE_DEVICES': visible,
  }
  address = clusters.find('', None, None, 'slurm', SLURM | variables)
  assert address[:4] == ('', 8, 3, 'slurm')
  assert address.device_ids == device_ids
  assert 'node[07-08]' in address.label


def test_open_mpi():
  address = clusters.find('node0:9876', None, None, 'mpi', MPI)
  assert address[:4] == ('node0:9876', 2, 1, 'deactivate')
  older = MPI | {clusters.ORTE: '1314521088.0;tcp://10.96.0.1:43370'}
  address = clusters.find('', None, None, 'mpi', older)
  assert address[:4] == ('', 2, 1, 'ompi')


def test_variables():
  address = clusters.find('', None, None, 'env', ENV)
  assert address[:4] == ('node0:9876', 2, 0, 'deactivate')


BAD = {
  'incomplete': (('node0:1', None, 0, '', {}), '--processes is missing'),
  'only a number': (
    ('', None, 0, '', {}),
    '--coordinator, --processes is missing',
  ),
  'a number too high': (('node0:1', 2, 2, '', {}), '--process=2: give 0 to 1'),
  'no processes': (('node0:1', 0, 0, '', {}), '0 processes: give 1'),
  'no port': (('node0', 2, 0, '', {}), "coordinator='node0': give HOST:PORT"),
  'a high port': (('node0:70000', 2, 0, '', {}), 'give HOST:PORT'),
  'flag and cluster': (
    ('', None, 1, 'slurm', SLURM),
    '--process=1: --cluster=slurm',
  ),
  'unknown': (('', None, None, 'pbs', {}), "'pbs': choose one of slurm, mpi"),
  'outside of Slurm': (
    ('', None, None, 'slurm', {}),
    'SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_NODELIST is not set: .* srun',
  ),
  'outside of a pod': (('', None, None, 'k8s', {}), 'KUBERNETES_SERVICE_HOST'),
  'Open MPI 5': (('', None, None, 'mpi', MPI), 'Open MPI 5 .* --coordinator'),
  'no number': (
    ('', None, None, 'env', ENV | {'JAX_PROCESS_ID': 'one'}),
    "JAX_PROCESS_ID='one': give a number",
  ),
  'a bad variable': (
    ('', None, None, 'env', ENV | {'JAX_COORDINATOR_ADDRESS': 'node0'}),
    "JAX_COORDINATOR_ADDRESS='node0': give HOST:PORT",
  ),
}


@pytest.mark.parametrize('case', BAD)
def test_inconsistent_flags_are_refused(case):
  arguments, message = BAD[case]
  with pytest.raises(errors.InputError, match=message):
    clusters.find(*arguments)
