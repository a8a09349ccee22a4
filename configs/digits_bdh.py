"""Handwritten digits of 8 x 8 pixels with a Vision-BDH; no download is needed.

  python -m launch.train --config=configs/digits_bdh.py --workdir=runs/digits
  python -m launch.evaluate --workdir=runs/digits --split=test

The 1,797 digits that ship with scikit-learn, split 70 / 10 / 20 per cent.
Training shifts each image by up to one pixel.
"""

from rnn_jax import config as config_lib


def get_config():
  """Returns the config."""
  config = config_lib.default(
    'bdh', task='image_classification', source='digits', layout='images'
  )

  config.data.classes = tuple('0123456789')
  config.data.splits = (70, 10, 20)
  config.data.image.size = 8
  config.data.image.channels = 1
  config.data.image.crop = 1
  config.data.batch_size = 64
  config.data.workers = 0

  config.vision.patch = 4
  config.vision.pooling = 'mean'
  config.model.block = 'renormed'
  config.model.norm = 'standard'
  config.model.positions = 'learned'
  config.model.layers = 4
  config.model.shared_layers = True
  config.model.width = 64
  config.cell.heads = 4
  config.cell.neurons = 128
  config.cell.sees = 'row'
  config.cell.dropout = 0.3

  config.optimizer.learning_rate = 3e-3
  config.optimizer.weight_decay = 0.05
  config.schedule.warmup_steps = 50
  config.schedule.final_learning_rate = 1e-5

  config.train.label_smoothing = 0.1
  config.train.steps = 2000
  config.train.log_every = 50
  config.train.checkpoint_every = 1000
  config.evaluate.every = 200
  config.evaluate.batch_size = 64
  config.evaluate.criterion = 'errors'
  config.sample.new_tokens = 0
  return config
