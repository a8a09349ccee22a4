"""The Dragon Hatchling (BDH) as a language model of bytes.

  python -m launch.train --config=configs/bdh.py --workdir=runs/bdh
  python -m launch.train --config=configs/bdh.py:small --workdir=runs/bdh_small

'base' has the published sizes, and 25,297,408 parameters, of which all 6 layers
share 25,165,824: one for a GPU (--config.train.precision=bfloat16). Bytes and
the document boundary are 257 tokens here; the published vocabulary, 256, has no
boundary, and with it there are 25,296,896. 'small' has 852,224 and trains on 2
cores. Both read the standard library's sources; for files of yours give
--config.data.source=text --config.data.path=GLOB.
"""

from rnn_jax import config as config_lib

SIZES = {  # layers, width, neurons of each of 4 heads
  'base': (6, 256, 8192),
  'small': (4, 128, 512),
}


def get_config(size='base'):
  """Returns the config of one of SIZES."""
  if size not in SIZES:
    raise ValueError(f'size={size!r}: choose one of {[*SIZES]}')
  layers, width, neurons = SIZES[size]
  config = config_lib.default('bdh')

  config.data.source = 'python_stdlib'
  config.data.layout = 'stream'
  config.data.stretch = 8192
  config.data.length = 256
  config.data.batch_size = 8
  config.data.workers = 0

  config.model.block = 'normed'
  config.model.norm = 'standard'
  config.model.layers = layers
  config.model.shared_layers = True
  config.model.width = width
  config.model.kernel_scale = 0.02
  config.model.embedding_scale = 0.02
  config.model.head_bias = False
  config.cell.heads = 4
  config.cell.neurons = neurons
  config.cell.dropout = 0.1

  config.remat.layers = 1
  config.optimizer.learning_rate = 1e-3
  config.optimizer.weight_decay = 0.1
  config.schedule.warmup_steps = 100
  config.schedule.final_learning_rate = 1e-4
  config.train.steps = 1500
  config.train.log_every = 50
  config.train.checkpoint_every = 500
  config.evaluate.every = 500
  config.sample.prompt = 'def '
  return config
