"""Preferences: the chosen reply shall gain on the rejected one (DPO).

    margin = beta ((log pi(y_w) - log ref(y_w)) - (log pi(y_l) - log ref(y_l)))
    loss   = -log sigmoid(margin)                                     per pair

y_w is the chosen and y_l the rejected reply to the same prompt, log pi(y) the
sum of log p of its tokens and its end, and ref a trained model that stays as it
is: the one that training begins with. It runs in the same program, on the same
rows, so nothing is stored, and its log-probabilities are those of the text as
the model itself reads it. With adapters it is the model without their changes,
whose parameters are there already. beta (..) of a reply is its reward.
Source: Rafailov et al., "Direct Preference Optimization", 2023.
"""

import dataclasses
from typing import Any
from typing import ClassVar
from typing import Self

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import dpo as examples
from rnn_jax.models import adapters
from rnn_jax.models import language_model
from rnn_jax.runs import reference_model
from rnn_jax.tasks import base
from rnn_jax.tasks import language_modeling

Sums = base.Sums
PyTree = base.PyTree


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # How fast rewards grow with the log-probabilities.
  beta: float = config_lib.option(0.1, above=0)
  # Folder of the run that training begins with; '': what adapters change.
  reference: str = ''
  checkpoint: str = 'best'  # of it; or 'latest', or a step
  # 'turns': a boundary ends the prompt; 'text': the reply continues it.
  framing: str = config_lib.option('turns', choices=('turns', 'text'))

  loss_per: ClassVar[str] = 'pair'
  columns: ClassVar[tuple[str, ...]] = examples.COLUMNS
  excludes: ClassVar[tuple[str, ...]] = (
    'remat.segment',
    'mesh.pipe!=1',
    'mesh.tensor!=1',
    'train.label_smoothing',
    'train.z_loss',
  )

  @property
  def answers(self) -> bool:  # type: ignore[override]  # by `framing`
    """Whether a boundary ends a prompt."""
    return self.framing == 'turns'

  @property
  def frames_as(self) -> str:  # type: ignore[override]  # by `framing`
    """The task as which a text is framed, where it isn't a pair."""
    return 'dialogue' if self.answers else 'language_modeling'

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if config.adapters.trained and not self.reference:
      errors.refuse(
        'adapters.trained',
        config.adapters.trained,
        "the reference would change with them: name it, task.reference='RUN'",
      )

  def merged(self, run: str, step: int) -> Self:
    """Returns the options with the model that adapters changed as reference."""
    if self.reference:
      return self
    return dataclasses.replace(self, reference=run, checkpoint=str(step))


make_examples = examples.Pairs  # workers import that file, and no jax
check_documents = examples.check


def parts(task: config_lib.Task) -> tokens_lib.EncodeParts:
  """Returns what encodes the parts of documents."""
  return examples.encoder(task)


class Task(language_modeling.Task):
  """The model of a config and tokenizer, its loss and metrics."""

  headline = 'accuracy', 'chosen'

  def __init__(
    self, config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
    super().__init__(config, tokenizer)
    self._config = config
    self._tokenizer = tokenizer
    self._reference: Any = self.model
    self._constants: PyTree = None
    self.reads_unchanged = bool(
      config.adapters.rank and not config.task.reference
    )

  def opened(self) -> Self:
    """Returns the task with its reference, which it reads.

    Raises:
      InputError: no run is named, or it doesn't fit (runs/reference_model.py).
    """
    options = self._config.task
    if self.reads_unchanged:
      return self
    if not options.reference:
      errors.refuse(
        'task.reference',
        '',
        'name the run that --init_from begins with, or give adapters.rank',
      )
    bundle = reference_model.read(
      'task.reference',
      options.reference,
      options.checkpoint,
      self._config,
      self._tokenizer,
    )
    self._reference = language_model.from_config(
      bundle.config, self._tokenizer.size
    )
    self._constants = {'params': bundle.params}
    return self

  def _segment(self, params, key, state, batch, n):
    """Returns (state, sums) of the rows, which have one segment."""
    batch = separated(batch)
    rngs = self._rngs(key, n)
    constants = self._constants
    if self.reads_unchanged:
      params = {**params}
      constants = {'params': params.pop(adapters.UNCHANGED)}
    own_BxL = _log_probabilities(self.model, {'params': params}, batch, rngs)
    fixed_BxL = _log_probabilities(self._reference, constants, batch, {})
    gains_BxL = own_BxL - jax.lax.stop_gradient(fixed_BxL)
    return state, pair_sums(
      gains_BxL, batch.weights_BxL, self._config.task.beta
    )

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums, means over pairs; the loss in nats."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'accuracy': sums['hits'] / sums['weight'],
      'margin': (sums['chosen'] - sums['rejected']) / sums['weight'],
      'chosen_reward': sums['chosen'] / sums['weight'],
      'rejected_reward': sums['rejected'] / sums['weight'],
    }


make = Task


def separated(batch: batch_lib.Batch) -> batch_lib.Batch:
  """Returns the rows with a start where the rejected half of a pair begins.

  That is at the first step without weight after some with.
  """
  asked_BxL = batch.weights_BxL > 0
  before_BxL = jnp.pad(asked_BxL, [(0, 0), (1, 0)])[:, :-1]
  ended_BxL = (before_BxL & ~asked_BxL).astype(batch.starts_BxL.dtype)
  return batch._replace(starts_BxL=batch.starts_BxL | ended_BxL)


def pair_sums(
  gains_BxL: jax.Array, weights_BxL: jax.Array, beta: float
) -> Sums:
  """Returns the sums over pairs of rows, a dict of scalars.

  Args:
    gains_BxL: log pi - log ref of each step's target.
    weights_BxL: 1 on replies, 0 elsewhere; the runs of ones in a row are the
      chosen and the rejected reply of a pair, in turn.
    beta: of the rewards.
  """
  L = weights_BxL.shape[1]
  asked_BxL = weights_BxL > 0
  before_BxL = jnp.pad(asked_BxL, [(0, 0), (1, 0)])[:, :-1]
  run_BxL = jnp.cumsum(asked_BxL & ~before_BxL, 1) - 1  # -1: before the first

  def by_run(values_L, run_L):
    return jax.ops.segment_sum(values_L, run_L, 2 * (L // 2 + 1))

  masked_BxL = jnp.where(asked_BxL, gains_BxL, 0)
  rewards_BxN = beta * jax.vmap(by_run)(masked_BxL, run_BxL)
  steps_BxN = jax.vmap(by_run)(asked_BxL.astype(jnp.float32), run_BxL)
  chosen_BxN, rejected_BxN = rewards_BxN[:, ::2], rewards_BxN[:, 1::2]
  is_pair_BxN = (steps_BxN[:, 1::2] > 0).astype(jnp.float32)
  margin_BxN = chosen_BxN - rejected_BxN
  loss = -jnp.sum(is_pair_BxN * jax.nn.log_sigmoid(margin_BxN))
  return {
    'objective': loss,
    'loss': loss,
    'weight': jnp.sum(is_pair_BxN),
    'hits': jnp.sum(is_pair_BxN * (margin_BxN > 0)),
    'chosen': jnp.sum(is_pair_BxN * chosen_BxN),
    'rejected': jnp.sum(is_pair_BxN * rejected_BxN),
  }


def _log_probabilities(model, variables, batch, rngs):
  """Returns log p of each step's target, BxL, float32."""
  state = model.bind({}).init_state(len(batch.tokens_BxL))
  _, logits_BxLxV = model.apply(
    variables, state, batch.tokens_BxL, batch.starts_BxL, rngs=rngs
  )
  logp_BxLxV = jax.nn.log_softmax(logits_BxLxV.astype(jnp.float32))
  targets_BxLx1 = batch.targets_BxL[..., None]
  return jnp.take_along_axis(logp_BxLxV, targets_BxLx1, -1)[..., 0]
