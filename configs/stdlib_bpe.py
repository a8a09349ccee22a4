"""The default job, configs/stdlib_bytes.py, in byte pairs, trained by Muon.

    python -m launch.train --config=configs/stdlib_bpe.py \\
        --workdir=runs/stdlib_bpe

A token is about three bytes, so that as many steps read three times as much
text: on unseen files 1.50 bits per byte after five minutes on 2 cores, where
stdlib_bytes has 1.81 and gzip 1.86, and 1.29 after 19 minutes, with
--config.train.steps=6000; xz has 1.49 (docs/results.md).
"""

from configs import stdlib_bytes


def get_config():
  """Returns the config."""
  config = stdlib_bytes.get_config()
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 2048
  config.optimizer.name = 'muon'
  config.optimizer.learning_rate = 6e-3
  return config
