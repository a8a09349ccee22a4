"""Folders of checkpoints for the tests of writing and of damage."""

import logging
import pathlib
import shutil

import absl.logging
import pytest

from rnn_jax.runs.checkpoints import checkpoint
from tests.support import saved


@pytest.fixture
def warnings():
  """The warnings that reach the terminal."""
  lines = []
  handler = logging.Handler(logging.WARNING)
  handler.emit = lambda record: lines.append(record.getMessage())
  absl.logging.get_absl_logger().addHandler(handler)
  yield lines
  absl.logging.get_absl_logger().removeHandler(handler)


@pytest.fixture(scope='session')
def pristine(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run') / 'checkpoints'
  saved.save_all(folder, 3, {1: 0.5, 2: 0.25, 3: None})
  return folder


@pytest.fixture
def folder(pristine, tmp_path):
  return pathlib.Path(shutil.copytree(pristine, tmp_path / 'checkpoints'))


@pytest.fixture
def writer(folder):
  checkpoints = checkpoint.Checkpoints(folder, 3)
  yield checkpoints
  checkpoints.close()


@pytest.fixture
def reader(folder):
  checkpoints = checkpoint.Checkpoints(folder)
  yield checkpoints
  checkpoints.close()
