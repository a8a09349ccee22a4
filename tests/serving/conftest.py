"""The tests of this folder share the programs of equal models."""

import pytest

from tests.support import compiled


@pytest.fixture(scope='session', autouse=True)
def _programs():
  with compiled.shared():
    yield
