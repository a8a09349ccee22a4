"""Transformers of configs/: what their training step needs."""

import importlib
import time
import types

import jax

from rnn_jax import config as config_lib
from rnn_jax.ops import cross_entropy
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.tasks import language_modeling
from rnn_jax.training import memory
from rnn_jax.training import program_memory
from rnn_jax.training import step as step_lib


def step_memory(repeats, config, argument, batch, overrides, whole=False):
  """Bytes of a training step by the compiler; nothing runs.

  Args:
    repeats: unused: a compiler counts the same each time.
    config: a file of configs/.
    argument: of its get_config; empty: none.
    batch: rows.
    overrides: {'section.key': value}.
    whole: whether all logits are held at once.
  """
  del repeats
  module = importlib.import_module(f'configs.{config}')
  raw = module.get_config(*filter(None, [argument]))
  for key, value in overrides.items():
    section, _, name = key.partition('.')
    raw[section][name] = value
  parsed = config_lib.parse(raw)
  if whole:
    cross_entropy.BLOCK[jax.default_backend()] = 2**62
  tokens = types.SimpleNamespace(size=parsed.data.vocabulary, lossless=False)
  task = language_modeling.Task(parsed, tokens)
  steps = step_lib.Steps(task, parsed, mesh_lib.make())
  begin = time.perf_counter()
  program = steps.compile_train(batch, parsed.data.length)
  seconds = time.perf_counter() - begin
  found = program_memory.of(program)
  params, optimizer = memory.state_bytes(steps, batch)
  return {
    'weights': params // 4,
    'parameter_bytes': params,
    'optimizer_bytes': optimizer,
    'argument_bytes': found.arguments,
    'temp_bytes': found.temporaries,
    'total_bytes': found.total,
    'compile_seconds': seconds,
  }
