"""The Dragon Hatchling (BDH) as a byte-level language model.

  python -m launch.train --config=configs/bdh.py --workdir=runs/bdh
  python -m launch.train --config=configs/bdh.py:small --workdir=runs/bdh_small

'base' has the published sizes and 25,297,408 parameters, of which all 6 layers
share 25,165,824; train it on a GPU (--config.train.precision=bfloat16). The
vocabulary is the 256 bytes and a document boundary; the published one has no
boundary, which makes 25,296,896 parameters. 'small' has 852,224 and trains on 2
CPU cores. Both read the sources of Python's standard library; for your own
files, add --config.data.source=text --config.data.path=GLOB.
"""

from rnn_jax import config as config_lib

SIZES = {  # layers, width, neurons in each of the 4 heads
  'base': (6, 256, 8192),
  'small': (4, 128, 512),
}


def get_config(size='base'):
  """Returns the config of one of SIZES."""
  if size not in SIZES:
    raise ValueError(f'size={size!r}: choose one of {[*SIZES]}')
  layers, width, neurons = SIZES[size]
  config = config_lib.default('bdh', layout='stream')

  config.data.segment_tokens = 8192
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
