"""Writes a run's folder for the tests of generation."""

import jax

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.runs import workdir
from rnn_jax.runs.checkpoints import checkpoint
from tests.inference import models
from tests.support import saved


def make(folder, kind=None, losses=(2.0, 1.0, 3.0), boundary_bias=0.0):
  """Writes checkpoints 1, 2, ... of random models with these losses.

  A low `boundary_bias` makes models whose texts don't end early.
  """
  kind = kind or tokenizer.Bytes()
  config = models.config()
  model, _ = models.build(vocabulary=kind.size)
  folder.mkdir(exist_ok=True)
  (folder / 'config.json').write_text(
    workdir.dump(config_lib.to_dict(config)), encoding='utf-8'
  )
  kind.save(folder / 'tokenizer.json')
  checkpoints = checkpoint.Checkpoints(folder / 'checkpoints', keep=9)
  for step, loss in enumerate(losses, 1):
    progress = {} if loss is None else {'held_out_loss': loss}
    params = models.init(model, step)
    bias = params['head']['bias'].at[kind.boundary].add(boundary_bias)
    params['head'] = params['head'] | {'bias': bias}
    state = {'params': params}
    saved.save(checkpoints, step, state, progress=progress)
  checkpoints.close()
  return folder


def parameters(step, kind):
  """The parameters of that checkpoint."""
  model, _ = models.build(vocabulary=kind.size)
  return jax.device_get(models.init(model, step))
