"""Runs of released versions are read, used, resumed and served as before."""

import json

import pytest

from rnn_jax.runs import workdir
from tests.kept_runs import answers
from tests.kept_runs import kinds
from tests.kept_runs import make
from tests.support import shared

pytestmark = pytest.mark.slow
VERSIONS = sorted(x.parent.name for x in answers.ROOT.glob('*/*.json'))
# Sums of float32 differ between processors by 1e-6, after a step by 1e-5.
CLOSE = {'rel': 1e-3, 'abs': 1e-4}
RUN_BYTES, ALL_BYTES = 2**17, 10**6


@pytest.fixture(autouse=True, scope='module')
def _programs():
  with shared.programs():
    yield


def close(value):
  """A value to compare with: numbers with a tolerance, all else exactly."""
  match value:
    case float():
      return pytest.approx(value, **CLOSE)
    case dict():
      return {key: close(x) for key, x in value.items()}
    case list():
      return [close(x) for x in value]
  return value


@pytest.mark.parametrize('name', kinds.KINDS)
@pytest.mark.parametrize('kept', VERSIONS)
def test_a_kept_run_answers_as_it_did(kept, name):
  folder = answers.ROOT / kept
  stored = json.loads((folder / make.ANSWERS).read_text())
  if name not in stored:
    pytest.skip(f'{kept} has no such kind')
  got = json.loads(json.dumps(answers.of(name, folder)))
  assert got.keys() == stored[name].keys()
  for question, want in stored[name].items():
    assert got[question] == close(want), question
  assert got.get('served', got['asked']) == close(got['asked'])


def test_the_oldest_version_that_is_read_has_kept_runs():
  assert workdir.OLDEST in VERSIONS


def size(files):
  return sum(x.stat().st_size for x in files)


@pytest.mark.parametrize('kept', VERSIONS)
def test_the_runs_of_a_version_are_small(kept):
  files = (answers.ROOT / kept).rglob('*')
  assert size(x for x in files if x.is_file()) < ALL_BYTES


@pytest.mark.parametrize('name', kinds.KINDS)
@pytest.mark.parametrize('kept', VERSIONS)
def test_a_kept_run_is_small_and_names_no_folder(kept, name):
  files = [x for x in (answers.ROOT / kept / name).rglob('*') if x.is_file()]
  assert 0 < size(files) < RUN_BYTES
  for path in files:
    content = path.read_bytes()
    assert not [x for x in (b'/tmp', b'/home', b'/root') if x in content], path
