"""Language modelling: predict each next token; all sums are weighted.

    loss = - sum_t w_t log p(target_t | tokens_<=t)        in nats

Bits per byte divide the loss by the bytes that the targets stand for, so that
tokenizers compare; a lossy tokenizer has none.
"""

import functools
import math

import jax.numpy as jnp
import numpy as np

from rnn_jax.data import rows as rows_lib
from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.models import segments
from rnn_jax.models import stack
from rnn_jax.ops import cross_entropy
from rnn_jax.parallel import axes
from rnn_jax.parallel import pipeline
from rnn_jax.parallel import pipeline_flush


def make(config, tokenizer):
  """Returns the task of a Config."""
  return Task(config, tokenizer)


class Task:
  """The model of a config and tokenizer, and what is measured on it."""

  unit = 'tokens'

  def __init__(self, config, tokenizer):
    self.model = language_model.from_config(config, tokenizer.size)
    self._bytes_V = None
    if tokenizer.lossless:
      ids = range(tokenizer.size)
      self._bytes_V = np.array(
        [len(tokenizer.decode_bytes([i])) for i in ids], np.float32
      )
    self._loss = cross_entropy.Options(
      config.train.label_smoothing,
      config.train.z_loss,
      self.model.policy.operands,
    )
    self._steps = config.remat.segment
    self._model_config = config.model
    self._drops = blocks.drops(config)
    self._flushes = config.mesh.schedule == '1f1b'

  def init_parameters(self, key):
    """Returns new parameters, float32."""
    tokens = jnp.zeros((1, 2), jnp.int32)
    state = self.model.bind({}).init_state(1)
    params = self.model.init(key, state, tokens)['params']
    return blocks.scaled(params, key, self._model_config)

  def prime(self, params, corpus):
    """Returns new parameters as they begin on a corpus: these."""
    del corpus
    return params

  def init_state(self, B):
    """The recurrent state before a document, for B rows."""
    return self.model.bind({}).init_state(B)

  def blank_batch(self, rows, length):
    """A batch of padding."""
    return rows_lib.blank(rows, length)

  def letters(self):
    """The letters of the parameters by their path, see parallel/shares.py."""
    return self.model.letters()

  def state_letters(self):
    """The letters of the recurrent state, a tree like it."""
    return self.model.bind({}).state_letters()

  def sums(self, params, state, batch, key=None):
    """Runs the model on a batch; with a `key`, dropout is on.

    Returns:
      (state, sums), sums a dict of scalars: 'objective' is what training
      lowers, with label smoothing and z-loss; 'loss' is in plain nats.
    """
    run = functools.partial(self._segment, params, key)
    return segments.sums(run, self._steps, state, batch)

  def _segment(self, params, key, state, batch, n):
    """`sums` of segment number `n` of the rows."""
    rngs = self._rngs(key, n)
    if self._flushes and axes.size(pipeline.AXIS) > 1:
      return self._run_flush(params, rngs, state, batch)
    state, x_BxLxD = self.features(params, rngs, state, batch)
    return state, self.token_sums({'params': params}, x_BxLxD, batch)

  def _rngs(self, key, n=0):
    if key is None or not self._drops:
      return {}
    return blocks.dropout_keys(key, n)

  def features(self, params, rngs, state, batch):
    """Returns (state, what the head reads, BxLxD)."""
    return self.model.apply(
      {'params': params},
      state,
      batch.tokens_BxL,
      batch.starts_BxL,
      rngs=rngs,
      method='features',
    )

  def _run_flush(self, params, rngs, state, batch):
    """`_segment` by the schedule of `parallel/pipeline_flush.py`."""
    model = self.model
    position, (first, stacked) = state
    position, x_BxLxD = model.apply(
      {'params': params},
      position,
      batch.tokens_BxL,
      batch.starts_BxL,
      rngs=rngs,
      method='read',
    )
    block = blocks.Block(
      model.config, model.cell_config, model.plan, model.policy, parent=None
    )
    run = stack.stage(block)

    def stage(params, x_BxLxD, state, batch, keys):
      return run(params, x_BxLxD, state, batch.starts_BxL, keys)

    def loss(params, x_BxLxD, batch, keys):
      del keys
      variables = {'params': params}
      x_BxLxD = model.apply(variables, x_BxLxD, method='normalize')
      sums = self.token_sums(variables, x_BxLxD, batch)
      return sums.pop('objective'), sums

    objective, (sums, stacked) = pipeline_flush.objective(
      stage,
      loss,
      params['stack']['blocks'],
      {name: x for name, x in params.items() if name != 'stack'},
      pipeline.Inputs(x_BxLxD, stacked, batch, rngs),
      pipeline.Options(model.plan.micro_batches),
    )
    return (position, (first, stacked)), sums | {'objective': objective}

  def token_sums(self, variables, x_BxLxD, batch):
    """Returns the sums of a batch, from what the head reads."""
    weights = batch.weights_BxL
    head = self.model.apply(variables, method='head_weights')
    found = language_model.token_sums(
      self.model, x_BxLxD, head, (batch.targets_BxL, weights), self._loss
    )
    sums = {
      'objective': found.loss,
      'loss': found.nats,
      'weight': jnp.sum(weights),
      'hits': found.hits,
    }
    if self._bytes_V is not None:
      bytes_BxL = jnp.asarray(self._bytes_V)[batch.targets_BxL]
      sums['bytes'] = jnp.sum(weights * bytes_BxL)
    return sums | self.more_sums(x_BxLxD, head, batch)

  def more_sums(self, x_BxLxD, head, batch):
    """Sums that a task adds, of what the head reads; none here."""
    del x_BxLxD, head, batch
    return {}

  def summarize(self, sums):
    """Metrics of summed sums, Python floats: loss in nats a token, etc."""
    loss = sums['loss'] / sums['weight']
    metrics = {
      'loss': loss,
      'perplexity': math.exp(min(loss, 700.0)),
      'accuracy': sums['hits'] / sums['weight'],
    }
    if sums.get('bytes'):
      metrics['bits_per_byte'] = sums['loss'] / math.log(2) / sums['bytes']
    return metrics

  @property
  def headline(self):
    """The metric to show while training: (key of summarize, short name)."""
    if self._bytes_V is None:
      return 'perplexity', 'ppl'
    return 'bits_per_byte', 'bits/byte'
