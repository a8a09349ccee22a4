"""The engine's texts beside those of the batch loop: where they part, and why.

Both draw a token with a random number u from the request's seed: they take the
first token whose cumulative probability c exceeds u. Where two programs choose
a and b > a, one has u < c_a and the other u >= c_{b-1}. With the probabilities
of a third program, which reads prompt and text in one pass, the gap is by how
much these would have to be off,

    max(u - c_a, c_{b-1} - u, 0)

which is as small as rounding if rounding is all that differs.
"""

from collections.abc import Sequence

import jax
import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads.serving import model as model_lib
from benchmarks.workloads.serving import throughput
from rnn_jax.inference import decode
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.serving import engine as engine_lib


def beside_loop(
  requests: int,
  prompts: Sequence[int] = (128, 128),
  outputs: Sequence[int] = (128, 128),
  slots: int = 64,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """How many texts are the same, and how close the draws of others were.

  Arguments are those of throughput.against_loop.
  """
  source = model_lib.generator(overrides)
  options = engine_lib.Options(slots=slots, queue=requests, prefix_bytes=0)
  asked = throughput.draw(requests, prompts, outputs, slots)
  ours = throughput.serve(engine_lib.Engine(source, options), asked)
  theirs = throughput.loop(source, asked, slots)
  parted = [
    (request, text, other)
    for request, text, other in zip(asked, ours, theirs, strict=True)
    if text.tokens != other
  ]
  values = {
    'requests': requests,
    'tokens': sum(len(text.tokens) for text in ours),
    'same_texts': requests - len(parted),
  }
  if parted:
    values |= _compare(source, parted)
  return model_lib.facts(source) | values


def _compare(source, parted):
  """Returns the largest gap, and differences of log-probabilities."""
  places = [_first(text.tokens, other) for _, text, other in parted]
  texts = [
    np.concatenate([ids, np.array(text.tokens[:place], np.int32)])
    for ((ids, _), text, _), place in zip(parted, places, strict=True)
  ]
  table = sampling.make_table(len(parted))
  for row, ((_, options), *_) in enumerate(parted):
    line = options.line(options.index, source.tokenizer.boundary)
    sampling.put(table, row, line)
  weights = decode.Weights(source.params)
  read = decode.prefill(source.model, weights, *decode.pad(texts))
  keys = sampler.keys(table)
  keys = jax.vmap(jax.random.fold_in)(keys, np.array(places, np.uint32))
  uniform = np.asarray(jax.vmap(jax.random.uniform)(keys), np.float64)
  logprobs = np.asarray(jax.nn.log_softmax(read.logits_BxV), np.float64)
  ends = np.cumsum(np.exp(logprobs), -1)
  gaps, changes = [], []
  for row, (_, text, other) in enumerate(parted):
    place = places[row]
    chosen = text.tokens[place]
    a, b = sorted((chosen, other[place]))
    below, above = uniform[row] - ends[row, a], ends[row, b - 1] - uniform[row]
    gaps.append(max(below, above, 0.0))
    changes.append(abs(logprobs[row, chosen] - text.logprobs[place]))
  return {'largest_gap': max(gaps), 'largest_change': max(changes)}


def _first(ids, others):
  """Returns the place of the first token that differs."""
  pairs = enumerate(zip(ids, others, strict=True))
  return next(place for place, (a, b) in pairs if a != b)
