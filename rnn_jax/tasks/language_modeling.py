"""Language modelling: predict each next token; all sums are weighted.

    loss = - sum_t w_t log p(target_t | tokens_<=t)        in nats

Bits per byte divide the loss by the bytes of the targets, so that tokenizers
can be compared; a lossy tokenizer doesn't have them.
"""

import dataclasses
import math
from typing import Any
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import language_modeling as examples
from rnn_jax.models import blocks
from rnn_jax.models import experts
from rnn_jax.models import language_model
from rnn_jax.models import period
from rnn_jax.models import stack
from rnn_jax.ops import cross_entropy
from rnn_jax.ops import devices
from rnn_jax.tasks import base

Sums = base.Sums
PyTree = base.PyTree


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  per_token: ClassVar[bool] = True
  predicts_all: ClassVar[bool] = True


make_examples = examples.Whole  # workers import that file, and no jax
check_documents = examples.check


class Task(base.Task):
  """The model of a config and tokenizer, its loss and metrics."""

  unit = 'tokens'

  def __init__(
    self, config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
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
      sparse=not config.task.predicts_all,
    )
    self._steps = config.remat.segment
    self._model_config = config.model
    self._drops = blocks.drops(config)

  def init_parameters(self, key: jax.Array) -> PyTree:
    """Returns new parameters, float32."""
    tokens = jnp.zeros((1, 2), jnp.int32)
    state = self.model.bind({}).init_state(1)
    params = self.model.init(key, state, tokens)['params']
    return blocks.scaled(params, key, self._model_config)

  def _segment(self, params, key, state, batch, n):
    """Returns (state, sums) of segment number `n` of the rows."""
    rngs = self._rngs(key, n)
    if devices.current().interleaves:
      return self._interleave(params, rngs, state, batch)
    state, x_BxLxD, routes = self.features(params, rngs, state, batch)
    sums = self.head_sums({'params': params}, x_BxLxD, batch)
    return state, self.with_load(sums, routes, batch)

  def features(
    self,
    params: PyTree,
    rngs: dict[str, jax.Array],
    state: PyTree,
    batch: batch_lib.Batch,
  ) -> tuple[PyTree, jax.Array, PyTree]:
    """Returns (state, the head's inputs BxLxD, what experts' routers chose)."""
    (state, x_BxLxD), routes = experts.apply(
      self.model,
      params,
      state,
      batch.tokens_BxL,
      batch.starts_BxL,
      rngs=rngs,
      method='features',
    )
    return state, x_BxLxD, routes

  def with_load(
    self, sums: Sums, routes: PyTree, batch: batch_lib.Batch
  ) -> Sums:
    """Returns the sums of a batch with the balance of its experts."""
    weights, options = batch.weights_BxL, self._model_config.experts
    return experts.with_load(sums, routes, weights, weights, options)

  def _interleave(self, params, rngs, state, batch):
    """Runs `_segment` with a pipeline that interleaves forward and backward."""
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
    unit = period.unit(model.config)
    run = stack.stage(unit(*period.fields(model), parent=None))

    def stage(params, x_BxLxD, state, batch, keys):
      return run(params, x_BxLxD, state, batch.starts_BxL, keys)

    def loss(params, x_BxLxD, batch, keys):
      variables = {'params': params}
      x_BxLxD = model.apply(variables, x_BxLxD, rngs=keys, method='normalize')
      sums = self.head_sums(variables, x_BxLxD, batch)
      return sums.pop('objective'), sums

    objective, (sums, stacked) = devices.current().run_stages_and_loss(
      stage,
      loss,
      params['stack']['blocks'],
      {name: x for name, x in params.items() if name != 'stack'},
      devices.StageInputs(x_BxLxD, stacked, batch, rngs),
    )
    return (position, (first, stacked)), sums | {'objective': objective}

  def head_sums(
    self, variables: PyTree, x_BxLxD: jax.Array, batch: batch_lib.Batch
  ) -> Sums:
    """Returns the sums of a batch, from the head's inputs."""
    weights = batch.weights_BxL
    head: Any = self.model.apply(variables, method='head_weights')
    tokens = language_model.token_sums(
      self.model, x_BxLxD, head, (batch.targets_BxL, weights), self._loss
    )
    sums = {
      'objective': tokens.loss,
      'loss': tokens.nats,
      'weight': jnp.sum(weights),
      'hits': tokens.hits,
    }
    if self._bytes_V is not None:
      bytes_BxL = jnp.asarray(self._bytes_V)[batch.targets_BxL]
      sums['bytes'] = jnp.sum(weights * bytes_BxL)
    return sums | self.more_sums(tokens.right_BxL, batch)

  def more_sums(self, right_BxL: jax.Array, batch: batch_lib.Batch) -> Sums:
    """Returns the sums that a task adds; {} here.

    Args:
      right_BxL: 1 where no logit exceeds the target's, of steps with weight.
      batch: Batch.
    """
    del right_BxL, batch
    return {}

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums; the loss in nats per token."""
    loss = sums['loss'] / sums['weight']
    metrics = {
      'loss': loss,
      'perplexity': math.exp(min(loss, 700.0)),
      'accuracy': sums['hits'] / sums['weight'],
    }
    if sums.get('bytes'):
      metrics['bits_per_byte'] = sums['loss'] / math.log(2) / sums['bytes']
    return metrics | experts.metrics(sums)

  @property
  def headline(self) -> tuple[str, str]:
    """The metric to show during training: (key of summarize, short name)."""
    if self._bytes_V is None:
      return 'perplexity', 'ppl'
    return 'bits_per_byte', 'bits/byte'


make = Task
