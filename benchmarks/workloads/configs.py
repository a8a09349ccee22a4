"""Configs of configs/ by name, with keys changed."""

import importlib

import ml_collections

from benchmarks.harness import measure
from rnn_jax import config as config_lib


def load(
  name: str, argument: str = '', overrides: measure.Values | None = None
) -> ml_collections.ConfigDict:
  """The config of configs/<name>.py.

  Args:
    name: of the file.
    argument: of its get_config; empty: none.
    overrides: {'section.key': value}.
  """
  module = importlib.import_module(f'configs.{name}')
  raw = module.get_config(*filter(None, [argument]))
  config_lib.override(raw, overrides or {})
  return raw


def parse(
  name: str, argument: str = '', overrides: measure.Values | None = None
) -> config_lib.Config:
  """The same, parsed."""
  return config_lib.parse(load(name, argument, overrides))
