"""A trained model that writes with drafts and without, in turns.

One text at a time. Drafts change no bit of what the same generator writes; the
time is compared with that of a generator that was never asked to draft.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import ratios
from benchmarks.harness import tables

DRAFTS = (2, 4, 8)  # tokens, checked at once
TEMPERATURES = {'greedy': 0.0, 'sampled': 0.8}


def in_turns(
  plain: Any,
  drafting: Any,
  prompts: Sequence[str],
  repeats: int,
  new_tokens: int,
) -> list[tables.Row]:
  """Writes all prompts' continuations in each way, and compares the times.

  Args:
    plain: an inference.generate.Generator as launch.generate makes it.
    drafting: the same model's, for drafts.
    prompts: texts to continue.
    repeats: rounds.
    new_tokens: of each text.

  Returns:
    for each way to sample and count of drafts: {'sampling', 'draft_tokens',
    'ratio', 'low', 'high': seconds with drafts to those without,
    'tokens_a_call': new tokens for each run of the model}.

  Raises:
    RuntimeError: drafts changed a text.
  """
  found = []
  for sampling, temperature in TEMPERATURES.items():
    ways = {
      count: (drafting, _options(temperature, new_tokens, count))
      for count in (0, *DRAFTS)
    }
    texts = {count: _write(*way, prompts)[0] for count, way in ways.items()}
    if wrong := [count for count in DRAFTS if texts[count] != texts[0]]:
      raise RuntimeError(f'{wrong} drafts changed a text')
    ways[0] = plain, ways[0][1]
    _write(*ways[0], prompts)  # compiles
    seconds, calls = {count: [] for count in ways}, {}
    for _ in range(repeats):
      for count, way in ways.items():
        _, taken, calls[count] = _write(*way, prompts)
        seconds[count].append(taken)
    for count in DRAFTS:
      ratio = ratios.of(seconds[count], seconds[0])
      found.append(
        {
          'sampling': sampling,
          'draft_tokens': count,
          'ratio': ratio.ratio,
          'low': ratio.low,
          'high': ratio.high,
          'tokens_a_call': len(prompts) * new_tokens / calls[count],
        }
      )
  return found


def _options(temperature, new_tokens, draft_tokens):
  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling

  return generate.Options(
    max_new_tokens=new_tokens,
    sampling=sampling.Sampling(temperature),
    continues=True,
    stop_at_boundary=False,
    draft_tokens=draft_tokens,
  )


def _write(generator, options, prompts):
  """Returns (texts, seconds of decoding, calls of the model)."""
  texts, seconds, calls = [], 0.0, 0
  for prompt in prompts:
    made = generator.generate([prompt], options)
    texts += [each.text for each in made.completions]
    seconds += made.timing.decode_seconds
    calls += made.timing.draft_calls
  return texts, seconds, calls
