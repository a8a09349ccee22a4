"""The training step: loss, gradient, sum over devices, clip, update.

    g = d/dp (sum_t w_t loss_t(p)) / sum_t w_t
    p <- p + rate_scale * tx(clip(g))         unless g or the loss isn't finite

A task's loss is a weighted sum over tokens, so parts of a batch (on devices, or
of accumulation) add up to the whole, and one division by the sum of the weights
gives the mean.

Nothing here depends on a mesh or on how a run takes its gradients, which
training/gradients.py has. training/programs.py assembles the parts of a run.
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.parallel import placement
from rnn_jax.training import loss_scale
from rnn_jax.training import train_state

PyTree = Any
Metrics = dict[str, Any]
Sums = dict[str, jax.Array]
TrainState = train_state.TrainState


class Aux(NamedTuple):
  """What a loss function returns beside the objective.

  Attributes:
    sums: scalars summed over the batch, with the key 'weight' for the sum of
      weights and 'objective' for what is differentiated; 'objective_weight',
      if it is there, is what the objective is a mean over, else 'weight'.
    changes: fields of the TrainState after the batch, as {'carry': ...}.
    extra_args: extra arguments of the optimizer's update, see
      optax.GradientTransformationExtraArgs; few optimizers take any.
  """

  sums: Sums
  changes: dict[str, PyTree]
  extra_args: dict[str, PyTree] = {}  # noqa: RUF012, it is never changed


# (params, state, batch, key of the step) -> (objective, Aux)
LossFn = Callable[..., tuple[jax.Array, Aux]]
TrainStep = Callable[[TrainState, batch_lib.Batch], tuple[TrainState, Metrics]]
# (params, carry, batch) -> (carry, sums)
EvaluateStep = Callable[[PyTree, PyTree, batch_lib.Batch], tuple[PyTree, Sums]]


def make_loss_fn(task: Any, carries: bool) -> LossFn:
  """Returns the loss of a task, summed over a batch.

  Args:
    task: of rnn_jax/tasks; see its `loss`.
    carries: whether the recurrent state is carried from batch to batch.
  """

  def loss_fn(params, state, batch, key):
    rows = batch.weights_BxL.shape[0]
    carry = state.carry if carries else task.init_state(rows)
    objective, (sums, carry) = task.loss(params, carry, batch, key)
    return objective, Aux(sums, {'carry': carry if carries else None})

  return loss_fn


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
  """What a training step is made of.

  Attributes:
    gradients: (state, batch) -> (Aux, gradients of the batch's mean loss), see
      training/gradients.py.
    tx: the optimizer, which clips gradients first.
    rate: step -> learning rate, for the metrics; `tx` applies it.
    apply_updates: (state, updates) -> parameters.
    measure_updates: (updates, parameters) -> more metrics (update_norms.py).
    loss_scale_steps: consecutive finite steps before a loss scale doubles.
    place: returns a state where it is between steps.
  """

  gradients: Callable[[TrainState, batch_lib.Batch], tuple[Aux, PyTree]]
  tx: optax.GradientTransformationExtraArgs
  rate: optax.Schedule
  apply_updates: Callable[[TrainState, PyTree], PyTree]
  measure_updates: Callable[[PyTree, PyTree], dict[str, Any]]
  loss_scale_steps: int = 1
  place: Callable[[TrainState], TrainState] = lambda state: state


def make_train_step(parts: Parts) -> TrainStep:
  """Returns train_step(state, batch) -> (state, metrics), to be jitted."""

  def train_step(state, batch):
    state = state.replace(opt_state=placement.to_device(state.opt_state))
    aux, grads = parts.gradients(state, batch)
    grad_norm = optax.tree.norm(grads)
    updates, opt_state = parts.tx.update(
      grads, state.opt_state, state.params, **aux.extra_args
    )
    updates = optax.tree.scale(state.rate_scale, updates)
    params = parts.apply_updates(state, updates)

    finite = jnp.isfinite(aux.sums['objective']) & jnp.isfinite(grad_norm)
    new = state.replace(params=params, opt_state=opt_state, **aux.changes)
    new = jax.tree.map(lambda x, old: jnp.where(finite, x, old), new, state)
    skipped = jnp.where(finite, 0, state.skipped + 1)
    scale, lowered = loss_scale.update(
      state.loss_scale, finite, parts.loss_scale_steps
    )
    skipped = jnp.where(lowered, state.skipped, skipped)
    metrics = {
      'sums': aux.sums,
      'finite': finite,
      'skipped': skipped,
      'real_tokens': _real_tokens(batch),
      'gradient_norm': grad_norm,
      'learning_rate': state.rate_scale * parts.rate(state.step),
      **parts.measure_updates(updates, state.params),
      **loss_scale.metrics(state.loss_scale),
    }
    new = new.replace(step=state.step + 1, skipped=skipped, loss_scale=scale)
    return parts.place(new), metrics

  return train_step


def make_compute_gradients(
  parts: Parts,
) -> Callable[[TrainState, batch_lib.Batch], tuple[PyTree, PyTree, Sums]]:
  """Returns (state, batch) -> (gradients of the mean loss, updates, sums).

  They are those of a training step that isn't taken.
  """

  def compute_gradients(state, batch):
    aux, grads = parts.gradients(state, batch)
    updates, _ = parts.tx.update(
      grads, state.opt_state, state.params, **aux.extra_args
    )
    return grads, optax.tree.scale(state.rate_scale, updates), aux.sums

  return compute_gradients


def make_evaluate_step(
  loss_fn: LossFn, sum_over_devices: Callable[[EvaluateStep], EvaluateStep]
) -> EvaluateStep:
  """Returns evaluate_step(params, carry, batch) -> (carry, sums).

  Args:
    loss_fn: the loss of a device's rows; without a key it has no dropout.
    sum_over_devices: turns the evaluation step of a device's rows into that of
      the whole batch.
  """

  def evaluate_step(params, carry, batch):
    state = TrainState(params, carry=carry)
    _, aux = loss_fn(params, state, batch, None)
    return aux.changes['carry'], aux.sums

  return sum_over_devices(evaluate_step)


def _real_tokens(batch):
  """Returns the number of steps that aren't padding.

  Each example ends with a target.
  """
  steps_L = jnp.arange(1, batch.weights_BxL.shape[1] + 1)
  return jnp.sum(jnp.max((batch.weights_BxL > 0) * steps_L[None], 1))
