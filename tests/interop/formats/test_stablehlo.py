"""The exported step, which runs without rnn_jax."""

import json
import os
import sys

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax import subprocesses
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.interop.formats import stablehlo
from tests.support import bundles
from tests.support import tiny

PROMPTS = np.array([[20, 3, 1, 4, 1], [20, 9, 2, 6, 5]], np.int32)
# None in sys.modules makes an import fail, even of installed packages.
ISOLATED = """
import runpy, sys
sys.modules |= dict.fromkeys(('flax', 'rnn_jax', 'safetensors'))
sys.argv[:1] = []
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def decode(folder, *flags):
  """Runs decode.py in a process that can't import this package."""
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  ended = subprocesses.run(
    [sys.executable, '-I', '-c', ISOLATED, str(folder / 'decode.py'), *flags],
    variables=environment | {'JAX_PLATFORMS': 'cpu'},
    timeout=300,
  )
  assert ended.code == 0, ended.err
  return [[*map(int, line.split(','))] for line in ended.out]


def generated(bundle, count):
  """The tokens that launch.generate writes greedily."""
  model = bundles.model(bundle)
  generator = generate.Generator(model, bundle.params, bundle.tokenizer)
  options = generate.Options(
    max_new_tokens=count,
    sampling=sampling.Sampling(temperature=0),
    stop_at_boundary=False,
  )
  generation = generator.generate([*PROMPTS], options)
  return [[*completion.tokens] for completion in generation.completions]


def test_a_process_without_the_package_writes_the_same_tokens(tmp_path):
  bundle = bundles.make(tiny.raw_config('text'))
  folder = tmp_path / 'step'
  stablehlo.write(bundle, request.Target(folder, 2, ('cpu', 'cuda')))
  rows = [','.join(map(str, row)) for row in PROMPTS]
  flags = (f'--tokens={rows[0]}', f'--tokens={rows[1]}', '--new_tokens=24')
  assert decode(folder, *flags) == generated(bundle, 24)
  interface = json.loads((folder / 'interface.json').read_text())
  assert interface['platforms'] == ['cpu', 'cuda']
  assert interface['inputs']['token_B'] == 'int32[2]'
  assert interface['outputs']['logits_BxV'] == 'float32[2, 21]'
  assert (interface['vocabulary'], interface['boundary']) == (21, 20)
  params = interface['inputs']['params']
  stored = tensors.read(folder / 'parameters.safetensors')
  assert params == {k: f'{x.dtype}{[*x.shape]}' for k, x in stored.items()}
  assert [path.name for path in tmp_path.iterdir()] == ['step']


def test_attention_with_positions(tmp_path):
  raw = bundles.raw_attention()
  bundle = bundles.make(raw)
  stablehlo.write(bundle, request.Target(tmp_path / 'step', 2))
  rows = [','.join(map(str, row)) for row in PROMPTS]
  flags = (f'--tokens={rows[0]}', f'--tokens={rows[1]}', '--new_tokens=10')
  assert decode(tmp_path / 'step', *flags) == generated(bundle, 10)
  program = jax.export.deserialize(
    (tmp_path / 'step' / 'step.stablehlo').read_bytes()
  )
  assert program.platforms == ('cpu',)


@pytest.mark.parametrize(
  ('values', 'message'),
  (
    ({'batch_size': 0}, '--batch_size=0: give 1 or more'),
    ({'platforms': ('cpu', 'gpu')}, '--platforms=cpu,gpu: choose from'),
  ),
)
def test_bad_choices_are_refused(tmp_path, values, message):
  bundle = bundles.make(tiny.raw_config('text'))
  with pytest.raises(errors.InputError, match=message):
    stablehlo.write(bundle, request.Target(tmp_path / 'step', **values))
  assert not [*tmp_path.iterdir()]
