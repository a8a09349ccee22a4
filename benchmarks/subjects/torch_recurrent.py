"""PyTorch's own LSTM and GRU between an embedding and a head."""

import torch

GATES = {'lstm': 4, 'gru': 3}


class LanguageModel(torch.nn.Module):
  """As wide as it takes to have at least `least` weights."""

  def __init__(self, kind, least, vocabulary=512, width=128, layers=2):
    super().__init__()
    hidden = 1
    while count(kind, hidden, vocabulary, width, layers) < least:
      hidden += 1
    make = {'lstm': torch.nn.LSTM, 'gru': torch.nn.GRU}[kind]
    self.embedding = torch.nn.Embedding(vocabulary, width)
    self.cells = make(width, hidden, layers, batch_first=True)
    self.head = torch.nn.Linear(hidden, vocabulary)

  def init_state(self, batch):
    """None: zeros."""
    del batch

  def forward(self, tokens, state):
    y, state = self.cells(self.embedding(tokens), state)
    return self.head(y), state


def count(kind, hidden, vocabulary, width, layers):
  """Weights of such a model."""
  inner = [width] + [hidden] * (layers - 1)
  cells = sum(GATES[kind] * hidden * (n + hidden + 2) for n in inner)
  return vocabulary * width + cells + (hidden + 1) * vocabulary
