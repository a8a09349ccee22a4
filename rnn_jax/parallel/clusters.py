"""The processes of a job, from flags or from a cluster's environment.

    slurm   SLURM_PROCID of SLURM_NTASKS; the first node is the coordinator
    mpi     OMPI_COMM_WORLD_RANK of OMPI_COMM_WORLD_SIZE; below Open MPI 5 the
            node of mpirun is the coordinator, else --coordinator names it
    k8s     a Job or JobSet, by asking the API (pip install kubernetes)
    env     JAX_PROCESS_ID of JAX_NUM_PROCESSES, JAX_COORDINATOR_ADDRESS

JAX's own cluster detection finds the first three; this file only checks first
that the variables are set. The only process of a host uses all of the host's
devices; one of several uses the device of its number.
"""

import importlib.util
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from rnn_jax import errors

VARIABLES = {
  'slurm': ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_STEP_NODELIST'),
  'mpi': ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'),
  'k8s': ('KUBERNETES_SERVICE_HOST',),
  'env': ('JAX_PROCESS_ID', 'JAX_NUM_PROCESSES', 'JAX_COORDINATOR_ADDRESS'),
}
DETECTION = {'slurm': 'slurm', 'k8s': None}  # JAX's names for them
LAUNCHED = {
  'slurm': 'start it with srun',
  'mpi': 'start it with mpirun of Open MPI',
  'k8s': 'start it in a pod',
  'env': 'set them on every host',
}
ORTE = 'OMPI_MCA_orte_hnp_uri'  # set by mpirun before Open MPI 5


class Address(NamedTuple):
  """A job's coordinator, and this process's number.

  Attributes:
    coordinator: 'HOST:PORT' of process 0; '': JAX finds it.
    processes: their number; None: JAX finds it.
    process: number of this one, from 0; None: JAX finds it.
    detection: the name of JAX's cluster detection method.
    device_ids: of the devices that this process uses; (): all; None: the one
      that JAX's detection chooses.
    label: what a message calls the job.
  """

  coordinator: str
  processes: int | None
  process: int | None
  detection: str | None = 'deactivate'
  device_ids: tuple[int, ...] | None = ()
  label: str = ''


def find(
  coordinator: str,
  processes: int | None,
  process: int | None,
  cluster: str,
  environment: Mapping[str, str] = os.environ,
) -> Address | None:
  """Returns the Address that the launcher's flags name; None: one process.

  Args:
    coordinator: --coordinator, 'HOST:PORT' or ''.
    processes: --processes or None.
    process: --process or None.
    cluster: --cluster, a key of VARIABLES or ''.
    environment: the variables of this process.

  Raises:
    InputError: flags contradict each other or are incomplete, or variables of
      the cluster are missing.
  """
  if coordinator:
    _check_coordinator(coordinator, '--coordinator')
  if cluster:
    for name, value in (('processes', processes), ('process', process)):
      if value is not None:
        raise errors.InputError(
          f'--{name}={value}: --cluster={cluster} finds it: omit one of them'
        )
    return _in_cluster(cluster, coordinator, environment)
  given = {
    '--coordinator': coordinator or None,
    '--processes': processes,
    '--process': process,
  }
  missing = [name for name, value in given.items() if value is None]
  if len(missing) == len(given):
    return None
  if missing:
    raise errors.InputError(
      f'{", ".join(missing)} is missing: several hosts need all of '
      '--coordinator=HOST:PORT --processes=N --process=I'
    )
  return _address(coordinator, processes, process, '--process')


def _in_cluster(cluster, coordinator, environment):
  if cluster not in VARIABLES:
    raise errors.InputError(
      f'--cluster={cluster!r}: choose one of {", ".join(VARIABLES)}'
    )
  absent = [name for name in VARIABLES[cluster] if name not in environment]
  if absent:
    raise errors.InputError(
      f'--cluster={cluster}: {", ".join(absent)} is not set: '
      f'{LAUNCHED[cluster]}, or give --coordinator, --processes and --process'
    )
  if cluster == 'k8s':
    return _kubernetes(coordinator)
  process, processes = VARIABLES[cluster][:2]
  if cluster == 'env' and not coordinator:
    name = VARIABLES['env'][2]
    coordinator = environment[name]
    _check_coordinator(coordinator, name)
  detection = DETECTION.get(cluster, 'deactivate')
  if cluster == 'mpi' and ORTE in environment:
    detection = 'ompi'
  elif cluster == 'mpi' and not coordinator:
    raise errors.InputError(
      '--cluster=mpi: Open MPI 5 reports no address: give --coordinator='
      'HOST:PORT, the host of rank 0 and a free port'
    )
  address = _address(
    coordinator,
    _number(environment, processes),
    _number(environment, process),
    process,
  )
  label = address.label
  if not coordinator:
    label = f'--cluster={cluster}, coordinator by {detection}'
    if cluster == 'slurm':
      label += f', first of {environment["SLURM_STEP_NODELIST"]}'
  return address._replace(
    detection=detection,
    device_ids=_device_ids(cluster, environment),
    label=label,
  )


def _kubernetes(coordinator):
  if importlib.util.find_spec('kubernetes') is None:
    raise errors.InputError(
      '--cluster=k8s: needs the package `kubernetes`: pip install kubernetes, '
      'or use --cluster=env with variables in the pod'
    )
  return Address(coordinator, None, None, None, None, '--cluster=k8s')


def _address(coordinator, processes, process, name):
  if processes < 1:
    raise errors.InputError(f'{processes} processes: give 1 or more')
  if not 0 <= process < processes:
    raise errors.InputError(
      f'{name}={process}: give 0 to {processes - 1}, the job has {processes} '
      'processes'
    )
  return Address(
    coordinator, processes, process, label=f'coordinator {coordinator}'
  )


def _check_coordinator(coordinator, name):
  match = re.fullmatch(r'(\[[0-9a-fA-F:]+\]|[^\s:/]+):(\d{1,5})', coordinator)
  if not match or not 0 < int(match[2]) < 2**16:
    raise errors.InputError(
      f'{name}={coordinator!r}: give HOST:PORT, as in node0:9876'
    )


def _number(environment, name):
  if not environment[name].isdecimal():
    raise errors.InputError(f'{name}={environment[name]!r}: give a number')
  return int(environment[name])


def _device_ids(cluster, environment):
  """Returns (), all devices, unless processes of a host share them."""
  if len(environment.get('CUDA_VISIBLE_DEVICES', '0,1').split(',')) == 1:
    return ()
  if cluster == 'slurm':
    tasks = environment.get('SLURM_STEP_TASKS_PER_NODE', '1')
    number = environment.get('SLURM_LOCALID')
    several = set(re.findall(r'(\d+)(?:\(x\d+\))?', tasks)) != {'1'}
  else:
    number = environment.get('OMPI_COMM_WORLD_LOCAL_RANK')
    several = environment.get('OMPI_COMM_WORLD_LOCAL_SIZE', '1') != '1'
  return (int(number),) if several and number is not None else ()
