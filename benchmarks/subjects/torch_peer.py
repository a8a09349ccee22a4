"""PyTorch beside ours: forward passes, training steps, generation; eager."""

import torch

from benchmarks import measure
from benchmarks.subjects import inputs
from benchmarks.subjects import torch_recurrent
from benchmarks.subjects import torch_simple_rnn
from rnn_jax import host

SHORT = 8  # tokens of a first run, which loads what is loaded late


def forward(
  repeats, model, batch=32, length=512, sequences=32, gradients=False, weights=0
):
  """Logits of `sequences` sequences, `batch` at a time.

  With `gradients` the pass keeps what a backward pass would need.
  """
  network, values = _make(model, weights)
  tokens = _tokens(sequences, length)[:, :-1].split(batch)
  memory = host.Memory()

  def run(last=None):
    with torch.set_grad_enabled(gradients):
      for some in tokens:
        network(some[:, :last], network.init_state(len(some)))

  run(SHORT)
  values |= measure.repeat(run, repeats, _warmups(repeats)) | memory.values()
  return values | _rates(values, sequences, length)


def train_step(repeats, model, batch=32, length=512, sequences=32, weights=0):
  """Forward, backward and AdamW, a step for each `batch` sequences."""
  network, values = _make(model, weights)
  optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
  tokens = _tokens(sequences, length).split(batch)
  memory = host.Memory()

  def run(last=None):
    for some in tokens:
      optimizer.zero_grad()
      read, targets = some[:, :-1][:, :last], some[:, 1:][:, :last]
      logits, _ = network(read, network.init_state(len(some)))
      loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten()
      )
      loss.backward()
      torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
      optimizer.step()

  run(SHORT)
  values |= measure.repeat(run, repeats, _warmups(repeats)) | memory.values()
  return values | _rates(values, sequences, length)


def generate(repeats, model, way, prefix=256, new_tokens=100, weights=0):
  """Greedy tokens behind a prefix, batch 1; `way` is 'rerun' or 'stepwise'."""
  network, values = _make(model, weights)
  prompt = _tokens(1, prefix)[:, :-1]
  make = {'rerun': rerun, 'stepwise': stepwise}[way]
  memory = host.Memory()

  def run():
    with torch.inference_mode():
      assert make(network, prompt, new_tokens).shape[1] == prefix + new_tokens

  values |= measure.repeat(run, repeats) | memory.values()
  return values | {'seconds_per_token': values['median'] / new_tokens}


def rerun(network, tokens, count):
  """Each new token from a pass over all tokens before it."""
  for _ in range(count):
    logits, _ = network(tokens, network.init_state(1))
    tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], 1)
  return tokens


def stepwise(network, tokens, count):
  """Each new token from the state and the token before it."""
  logits, states = network(tokens, network.init_state(1))
  made = [tokens, logits[:, -1:].argmax(-1)]
  for _ in range(count - 1):
    logits, states = network(made[-1], states)
    made.append(logits.argmax(-1))
  return torch.cat(made, 1)


def _make(model, weights):
  """A network from {'kind': ..., options}, and what is known of it."""
  torch.manual_seed(0)
  torch.set_num_threads(measure.cores())
  options = dict(model)
  kind = options.pop('kind', 'simple_rnn')
  if kind == 'simple_rnn':
    made = torch_simple_rnn.Options(**options)
    network = torch_simple_rnn.LanguageModel(made)
  else:
    network = torch_recurrent.LanguageModel(kind, **options)
  found = sum(x.numel() for x in network.parameters())
  if weights not in (0, found):
    raise RuntimeError(f'{found:,} weights, not {weights:,}')
  return network, {'weights': found}


def _tokens(rows, length):
  return torch.from_numpy(inputs.tokens(rows, length)).long()


def _warmups(repeats):
  """Whole ones, behind the short one; none for what takes minutes."""
  return 1 if repeats > 2 else 0


def _rates(values, sequences, length):
  return {
    'sequences': sequences,
    'tokens_per_second': sequences * length / values['median'],
  }
