"""Language models of 340 million and 1.3 billion parameters, for GPUs.

  python -m launch.train --config=configs/large.py:gated_deltanet_1b3 \\
      --config.data.path='corpus/*.txt' --workdir=runs/gated_deltanet_1b3

The name after the colon is a model of MODELS and a size of SIZES, as in
mamba2_340m (the default is gated_deltanet_340m). A step reads 65,536 tokens, 16
rows of 4,096, which fit one GPU of 80 GB; on eight of them, with
--config.mesh.fsdp=8, 128 rows do. docs/profiling.md has their memory, and the
time that is predicted.

    gated_deltanet   heads of 128 keys and 256 values, .75 and 1.5 times the
                     width in all, an MLP (Yang et al., "Gated Delta Networks",
                     2024); published are half as many heads, twice as wide
    mamba2           48 layers without an MLP, twice as wide inside, heads of 64
                     values, a state of 128 (Dao and Gu, "Transformers are
                     SSMs", 2024)
    gla              4 heads, keys of half the width, an MLP (Yang et al.,
                     "Gated Linear Attention Transformers", 2023)
    kda              heads of 128, an MLP (Kimi Team, "Kimi Linear", 2025)
    rwkv7            heads of 64, values mixed with the first layer's, its own
                     MLP (Peng et al., "RWKV-7 'Goose'", 2025)
    transformer      heads of 64, rotary positions, an MLP
    simple_rnn       heads of 64 keys and 128 values, an MLP: not published

The layouts are flash-linear-attention's (github.com/fla-org): widths of 1,024
and 2,048, 21, 24 or 48 layers, an MLP of 8/3 of the width, rounded up to 256s,
norms with scales, 32,000 byte pairs, an untied head without a bias.

Weights, gradients and both moments are float32, products bfloat16. Moments of
one byte leave more memory on one GPU: --config.optimizer.moments=int8. Layers
are unrolled, and a step runs in micro-batches that are small enough to store
all activations: nothing is computed again, and nothing copied into arrays of
all layers. RWKV-7 takes too long to compile so, and recomputes its layers.
The loss holds a block of logits at a time. 1.3 billion parameters need up to 73
of 80 GiB: --memory_fraction=0.95 lets the compiler plan with that much.
"""

from rnn_jax import config as config_lib
from rnn_jax import errors

SIZES = {'340m': 1024, '1b3': 2048}  # the model's width
VOCABULARY = 32_000
LENGTH, ROWS = 4096, 16  # tokens of a row, rows of a step
# Of a step: the activations of one fit in memory.
MICRO_BATCHES = {'340m': 2, '1b3': 4}


def get_config(name='gated_deltanet_340m'):
  """Returns the config of a model and size.

  Raises:
    InputError: there is no such model, or size.
  """
  model, _, size = name.rpartition('_')
  if model not in MODELS or size not in SIZES:
    raise errors.InputError(
      f'configs/large.py:{name}: give one of {[*MODELS]} and one of '
      f'{[*SIZES]}, as in gated_deltanet_340m'
    )
  width = SIZES[size]
  cell, keys = MODELS[model](width)
  config = config_lib.default(cell, source='text', layout='packed')

  config.data.path = 'corpus/*.txt'
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = VOCABULARY
  config.data.length = LENGTH
  config.data.batch_size = ROWS

  config.model.width = width
  config.model.layers = 24
  config.model.mlp_width = -(-width * 8 // 3 // 256) * 256
  config.model.norm_scale = True
  config.model.head_bias = False
  config.model.embedding_scale = 0.02
  config.model.kernel_scale = 0.02
  config.train.accumulate = MICRO_BATCHES[size]
  config.update_from_flattened_dict(keys)
  if not config.remat.layers:
    config.model.unroll = config.model.layers

  config.optimizer.learning_rate = 1e-3 if size == '340m' else 4e-4
  config.optimizer.b2 = 0.95
  config.optimizer.weight_decay = 0.1
  config.optimizer.clip_norm = 1.0
  config.schedule.warmup_steps = 1000
  config.schedule.final_learning_rate = config.optimizer.learning_rate / 10
  config.train.steps = 20_000
  config.train.precision = 'bfloat16'
  config.train.checkpoint_every = 1000
  config.evaluate.every = 1000
  config.evaluate.batch_size = ROWS
  config.sample.new_tokens = 0
  return config


def _gated_deltanet(width):
  return 'gated_deltanet', {
    'model.layers': 21,
    'cell.heads': width * 3 // 4 // 128,
    'cell.key_width': 128,
    'cell.value_width': 256,
    'cell.norm_scale': True,
    'recurrence.impl': 'pallas',
  }


def _mamba2(width):
  return 'mamba2', {
    'model.layers': 48,
    'model.mlp_width': 0,
    'model.norm_epsilon': 1e-5,
    'cell.heads': 2 * width // 64,
    'cell.key_width': 128,
    'cell.value_width': 64,
    'cell.norm_scale': True,
    'cell.norm_epsilon': 1e-5,
    'recurrence.impl': 'pallas',
  }


def _gla(width):
  return 'gla', {
    'cell.heads': 4,
    'cell.key_width': width // 8,
    'cell.value_width': width // 4,
    'cell.shared_gate': True,
    'cell.norm_scale': True,
  }


def _kda(width):
  return 'kda', {
    'cell.heads': width // 128,
    'cell.key_width': 128,
    'cell.value_width': 128,
    'cell.rank': 128,
    'cell.shared_gate': True,
    'cell.norm_scale': True,
    'recurrence.impl': 'pallas',
  }


def _rwkv7(width):
  kept = ('recurrence',)
  if width < SIZES['1b3']:
    kept = ('projection', 'recurrence', 'hidden')
  return 'rwkv7', {
    'model.norm': 'layer',
    'model.norm_scale': False,
    'model.embedding_norm': True,
    'model.mlp': 'channel_mix',
    'model.mlp_width': 4 * width,
    'cell.heads': width // 64,
    'cell.key_width': 64,
    'cell.value_width': 64,
    'cell.rank': 64,
    'cell.gate_rank': 128,
    'cell.value_rank': 16,
    'cell.shared_gate': True,
    'cell.value_residual': True,
    'recurrence.impl': 'pallas',
    'train.accumulate': 1,
    'remat.layers': 1,
    'remat.keep': kept,
  }


def _transformer(width):
  return 'attention', {
    'cell.heads': width // 64,
    'cell.head_width': 64,
    'recurrence.impl': 'cudnn',
    'train.accumulate': 2,
  }


def _simple_rnn(width):
  return 'simple_rnn', {
    'cell.heads': width // 128,
    'cell.key_width': 64,
    'cell.value_width': 128,
  }


MODELS = {  # each gives its cell, and its keys of the config at a width
  'gated_deltanet': _gated_deltanet,
  'mamba2': _mamba2,
  'gla': _gla,
  'kda': _kda,
  'rwkv7': _rwkv7,
  'transformer': _transformer,
  'simple_rnn': _simple_rnn,
}
