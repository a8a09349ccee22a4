"""Training steps of a model with experts on meshes of devices."""

from rnn_jax import config as config_lib
from rnn_jax.profiling import workload
from tests.parallel import forms

ROWS, LENGTH = 8, 8
ONE = {'data': 1}
FORMS = {
  'zero 3 and expert': {'data': 2, 'fsdp': 2, 'expert': 2},
  'expert, sequence and tensor': {
    'data': 1,
    'expert': 2,
    'sequence': 2,
    'tensor': 2,
  },
}


def config(mesh):
  """The Config of a small model on a mesh."""
  raw = config_lib.default('qrnn')
  raw.data.update(length=LENGTH, batch_size=ROWS, layout='packed')
  raw.model.update(width=16, mlp_width=8, layers=2)
  raw.model.experts.update(count=4, balance=0.1, shared_width=4)
  raw.mesh.update(mesh)
  raw.schedule.warmup_steps = 1
  raw.optimizer.update(name='sgd', learning_rate=1.0)
  return config_lib.parse(raw)


def train(mesh, first=None):
  """Returns forms.few_steps of a mesh."""
  parsed = config(mesh)

  def draw(n):
    """Rows end in padding, of some a shard of time or more."""
    batch = workload.random_batch(parsed, 257, ROWS, n)
    for row in range(ROWS):
      batch.weights_BxL[row, LENGTH - row % 6 :] = 0
    batch.weights_BxL[0, :5] = 0  # a prompt
    return batch

  return forms.few_steps(parsed, draw, first)


def measure():
  """Returns {form: (differences of parameters and sums, a device's shard)}."""
  first, params, sums, _ = train(ONE)
  results = {}
  for form, mesh in FORMS.items():
    _, others, other_sums, placed = train(mesh, first)
    off = max(
      abs(a[name] - b[name]) / max(abs(a[name]), 1)
      for a, b in zip(sums, other_sums, strict=True)
      for name in a
    )
    kernel = placed['stack']['blocks']['experts']['up']['kernel']
    own = kernel.addressable_shards[0].data.shape
    results[form] = forms.largest_difference(params, others), off, own
  return results
