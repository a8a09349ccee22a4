"""A training step planned for devices, and on this machine run as well."""

import dataclasses
import importlib
import math

from rnn_jax import config as config_lib
from rnn_jax.planning import devices as devices_lib
from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import predict
from rnn_jax.planning import program as program_lib
from rnn_jax.planning import report


def step(repeats, config, argument, overrides, mesh, rows):
  """What a plan says of a mesh, for each device of known figures.

  Args:
    repeats: unused: a compiler counts the same each time.
    config: a file of configs/.
    argument: of its get_config; empty: none.
    overrides: {'section.key': value}.
    mesh: {axis: size}.
    rows: of the whole batch.
  """
  del repeats
  program_lib.claim(math.prod(mesh.values()))
  first, *others = devices_lib.KNOWN.values()
  request = plan_lib.Request(
    _parsed(config, argument, overrides), mesh, 0, first, rows
  )
  plan = plan_lib.make(request)
  flops, state = program_lib.of_one_device(request.config, rows)
  told = {first.name: report.values(request, plan)}
  for device in others:
    alone = predict.work(flops, state, device)
    prediction = predict.predict(plan.program, device, alone)
    told[device.name] = report.values(
      dataclasses.replace(request, device=device),
      plan._replace(prediction=prediction),
    )
  return {'plans': told}


def confirmed(repeats, config, argument, overrides, mesh, rows):
  """A plan for this machine's own devices beside real steps on them.

  Args:
    repeats: of the whole: the machine measured, planned for, and stepped on.
    config, argument, overrides, mesh, rows: as of `step`.
  """
  program_lib.claim(math.prod(mesh.values()))
  parsed = _parsed(config, argument, overrides)
  told = []
  for _ in range(repeats):
    here = devices_lib.find('cpu')
    request = plan_lib.Request(parsed, mesh, 0, here, rows)
    plan = plan_lib.make(request)
    told.append(report.values(request, plan, plan_lib.confirm(plan)))
  return {'plans': told}


def _parsed(config, argument, overrides):
  module = importlib.import_module(f'configs.{config}')
  raw = module.get_config(*filter(None, [argument]))
  for key, value in overrides.items():
    section, _, name = key.partition('.')
    raw[section][name] = value
  return config_lib.parse(raw)
