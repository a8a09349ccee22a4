"""The Python blocks of docs/layers.md run; Keras is no dependency."""

import pathlib
import re

import jax
import numpy as np

GUIDE = pathlib.Path(__file__).parents[2] / 'docs' / 'layers.md'


def blocks(kind):
  return re.findall(rf'^```{kind}\n(.*?)^```', GUIDE.read_text(), re.M | re.S)


@jax.numpy_rank_promotion('allow')  # nnx.Linear and flax.linen.RNN promote
def test_the_blocks_run_and_both_classifiers_learn():
  names: dict = {}
  for block in blocks('python'):
    exec(compile(block, str(GUIDE), 'exec'), names)
  assert names['value'] < 0.1 and names['value_nnx'] < 0.1
  assert names['last'].h_BxS.shape == (5, 64)
  assert names['y'].shape == (2, 6, 64)
  assert len(names['text']) == 8
  np.testing.assert_array_equal(names['prompt'].shape, (1, 4))


def test_the_lines_are_as_many_as_the_table_says():
  classifier = blocks('python')[1]
  lines = [line for line in classifier.splitlines() if line.strip()]
  assert len(lines) == 23
  for block in (*blocks('python')[-2:], *blocks('py')):
    assert len(block.splitlines()) == 4
