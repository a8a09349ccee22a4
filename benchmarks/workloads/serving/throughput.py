"""The engine against the batch loop of `Generator`, on the same requests.

Both make the same tokens for the same seeds; rounds of the two take turns. The
loop decodes a batch until its longest text ends, so that with mixed lengths it
also makes tokens that nobody asked for. Its rate with these counted is what it
could reach if all lengths were equal.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads.serving import model as model_lib
from rnn_jax.inference import generate
from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving import requests as requests_lib


def against_loop(
  repeats: int,
  requests: int,
  prompts: Sequence[int],
  outputs: Sequence[int],
  slots: int = 64,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """Seconds of the engine and of the loop for the same requests.

  Args:
    repeats: rounds.
    requests: how many in a round.
    prompts: least and largest number of tokens of a prompt.
    outputs: of new tokens.
    slots: of the engine, and rows of the loop's batches.
    overrides: keys of the model's config.
  """
  source = model_lib.generator(overrides)
  engine = engine_lib.Engine(
    source,
    engine_lib.Options(slots=slots, queue=requests, prefix_bytes=0),
  )
  engine.warm_up()
  asked = draw(requests, prompts, outputs, slots)
  texts, rows = loop(source, asked, slots), 0  # compiles its programs
  same = _same(serve(engine, asked), texts)
  served, looped = [], []
  before = engine.stats()
  for _ in range(repeats):
    served.append(measure.seconds(lambda: serve(engine, asked)))
    looped.append(measure.seconds(lambda: loop(source, asked, slots)))
  after = engine.stats()
  tokens = sum(options.max_new_tokens for _, options in asked)
  for batch in _batches(asked, slots):
    rows += len(batch) * max(options.max_new_tokens for _, options in batch)
  other = measure.summarize(looped)
  values = measure.summarize(served)
  places = (after.steps - before.steps) * slots
  return (
    model_lib.facts(source)
    | values
    | {
      'loop': other,
      'tokens': tokens,
      'prompt_tokens': sum(len(ids) for ids, _ in asked),
      'tokens_per_second': tokens / values['median'],
      'loop_tokens_per_second': tokens / other['median'],
      'loop_row_tokens_per_second': rows / other['median'],
      'ratio': other['median'] / values['median'],
      'ratio_with_unused': tokens * other['median'] / (rows * values['median']),
      'slots_in_use': (after.new_tokens - before.new_tokens) / places,
      'same_texts': same,
    }
  )


def draw(count, prompts, outputs, slots):
  """Returns random (ids, options), whose draws follow from a row of `slots`."""
  rng = np.random.default_rng(0)
  return [
    (
      model_lib.prompt(rng, rng.integers(prompts[0], prompts[1] + 1)),
      requests_lib.Options(
        max_new_tokens=int(rng.integers(outputs[0], outputs[1] + 1)),
        index=n % slots,  # the row of its batch
        stop_at_boundary=False,
      ),
    )
    for n in range(count)
  ]


def _batches(asked, size):
  return [asked[n : n + size] for n in range(0, len(asked), size)]


def serve(engine, asked):
  """Returns each request's completion, by the engine."""
  handles = [engine.submit(*request) for request in asked]
  for handle in handles:
    while not handle.done:
      engine.step()
  return [handle.result().completions[0] for handle in handles]


def loop(source, asked, size):
  """Returns each request's ids, by the loop; longer ones are cut."""
  made = []
  for batch in _batches(asked, size):
    options = generate.Options(
      max_new_tokens=max(options.max_new_tokens for _, options in batch),
      stop_at_boundary=False,
      batch_size=size,
    )
    prompts = [ids for ids, _ in batch]
    texts = source.generate(prompts, options).completions
    made += [
      tuple(text.tokens[: own.max_new_tokens])
      for (_, own), text in zip(batch, texts, strict=True)
    ]
  return made


def _same(ours, theirs):
  return sum(a.tokens == b for a, b in zip(ours, theirs, strict=True))
