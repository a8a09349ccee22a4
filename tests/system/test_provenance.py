"""A CPU's name distinguishes processors with the same model name."""

import platform

import pytest

from rnn_jax.system import processor
from rnn_jax.system import provenance

X86 = 'processor: 0\nmodel name\t: AMD EPYC\nflags\t\t: sse2 avx'


@pytest.fixture(autouse=True)
def _forget():
  caches = provenance.machine, processor.features
  for cache in caches:
    cache.cache_clear()
  yield
  for cache in caches:
    cache.cache_clear()


@pytest.mark.parametrize(
  ('text', 'name'),
  (
    (f'{X86} avx2 avx512f\n', 'AMD EPYC, AVX-512'),
    (f'{X86} avx2\n', 'AMD EPYC, AVX2'),
    ('processor: 0\nFeatures: fp asimd\n', 'aarch64, NEON'),
  ),
)
def test_a_cpu_is_named_with_its_vectors(tmp_path, monkeypatch, text, name):
  path = tmp_path / 'cpuinfo'
  path.write_text(text)
  monkeypatch.setattr(processor, 'CPUINFO', path)
  monkeypatch.setattr(platform, 'processor', lambda: '')
  monkeypatch.setattr(platform, 'machine', lambda: 'aarch64')
  assert provenance.machine()['device'] == name
