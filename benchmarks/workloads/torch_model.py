"""PyTorch beside ours: forward passes, training steps, generation.

A `model` is {'kind': 'simple_rnn', 'lstm' or 'gru', 'device': 'cpu' or 'cuda',
option: value, ...}.
"""

from typing import Any

import torch

from benchmarks.harness import measure
from benchmarks.workloads import inputs
from benchmarks.workloads import torch_simple_rnn

SHORT = 8  # tokens of a first run, which loads what is loaded late
GATES = {'lstm': 4, 'gru': 3}
WIDTH, LAYERS = 128, 2


class Recurrent(torch.nn.Module):
  """PyTorch's own LSTM or GRU between an embedding and a head.

  As wide as it takes to have at least `least` weights.
  """

  def __init__(self, kind: str, least: int):
    super().__init__()
    hidden = 1
    while _count(kind, hidden) < least:
      hidden += 1
    make = {'lstm': torch.nn.LSTM, 'gru': torch.nn.GRU}[kind]
    self.embedding = torch.nn.Embedding(inputs.VOCABULARY, WIDTH)
    self.cells = make(WIDTH, hidden, LAYERS, batch_first=True)
    self.head = torch.nn.Linear(hidden, inputs.VOCABULARY)

  def init_state(self, batch: int) -> None:
    """None: zeros."""

  def forward(self, tokens: torch.Tensor, state: Any) -> tuple[Any, Any]:
    y, state = self.cells(self.embedding(tokens), state)
    return self.head(y), state


def _count(kind, hidden):
  """The weights of such a model."""
  inner = [WIDTH] + [hidden] * (LAYERS - 1)
  cells = sum(GATES[kind] * hidden * (n + hidden + 2) for n in inner)
  return inputs.VOCABULARY * (WIDTH + hidden + 1) + cells


def forward(
  repeats: int,
  model: measure.Values,
  batch: int = 32,
  length: int = 512,
  sequences: int = 32,
  gradients: bool = False,
  weights: int = 0,
) -> measure.Values:
  """Logits of `sequences` sequences, `batch` at a time.

  With `gradients` the pass keeps what a backward pass would need.
  """
  network, values = _make(model, weights)
  tokens = _tokens(sequences, length)[:, :-1].split(batch)

  def run(last=None):
    with torch.set_grad_enabled(gradients):
      for some in tokens:
        network(some[:, :last], network.init_state(len(some)))

  return values | _timed(run, repeats, sequences, length)


def train_step(
  repeats: int,
  model: measure.Values,
  batch: int = 32,
  length: int = 512,
  sequences: int = 32,
  weights: int = 0,
) -> measure.Values:
  """Forward, backward and AdamW, a step for each `batch` sequences."""
  network, values = _make(model, weights)
  optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
  tokens = _tokens(sequences, length).split(batch)

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

  return values | _timed(run, repeats, sequences, length)


def _timed(run, repeats, sequences, length):
  run(SHORT)
  warmups = 1 if repeats > 2 else 0  # none of what takes minutes
  values = measured(run, repeats, warmups)
  rate = sequences * length / values['median']
  return values | {'sequences': sequences, 'tokens_per_second': rate}


def measured(
  run: measure.Run, repeats: int, warmups: int = 1
) -> measure.Values:
  """`measure.with_memory` on the default device; a GPU's memory beside it."""
  if torch.get_default_device().type == 'cpu':
    return measure.with_memory(run, repeats, warmups)

  def finished():
    run()
    torch.cuda.synchronize()

  values = measure.with_memory(finished, repeats, warmups)
  return values | {'device_peak_bytes': torch.cuda.max_memory_allocated()}


def generate(
  repeats: int,
  model: measure.Values,
  way: str,
  prefix: int = 256,
  new_tokens: int = 100,
  weights: int = 0,
) -> measure.Values:
  """Greedy tokens after a prefix, batch 1; `way` is 'rerun' or 'stepwise'."""
  network, values = _make(model, weights)
  prompt = _tokens(1, prefix)[:, :-1]
  make = {'rerun': rerun, 'stepwise': stepwise}[way]

  def run():
    with torch.inference_mode():
      assert make(network, prompt, new_tokens).shape[1] == prefix + new_tokens

  values |= measured(run, repeats)
  return values | {'seconds_per_token': values['median'] / new_tokens}


def rerun(
  network: torch.nn.Module, tokens: torch.Tensor, count: int
) -> torch.Tensor:
  """Each new token from a pass over all tokens before it."""
  for _ in range(count):
    logits, _ = network(tokens, network.init_state(1))
    tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], 1)
  return tokens


def stepwise(
  network: torch.nn.Module, tokens: torch.Tensor, count: int
) -> torch.Tensor:
  """Each new token from the state and the token before it."""
  logits, states = network(tokens, network.init_state(1))
  made = [tokens, logits[:, -1:].argmax(-1)]
  for _ in range(count - 1):
    logits, states = network(made[-1], states)
    made.append(logits.argmax(-1))
  return torch.cat(made, 1)


def _make(model, weights):
  """The network, and {'weights': their number}."""
  torch.manual_seed(0)
  torch.set_num_threads(measure.cores())
  options = dict(model)
  kind = options.pop('kind', 'simple_rnn')
  torch.set_default_device(options.pop('device', 'cpu'))
  if kind == 'simple_rnn':
    sizes = torch_simple_rnn.Options(**options)
    network = torch_simple_rnn.LanguageModel(sizes)
  else:
    network = Recurrent(kind, **options)
  count = sum(x.numel() for x in network.parameters())
  if weights not in (0, count):
    raise RuntimeError(f'{count:,} weights, not {weights:,}')
  return network, {'weights': count}


def _tokens(rows, length):
  tokens = torch.from_numpy(inputs.tokens(rows, length)).long()
  return tokens.to(torch.get_default_device())
