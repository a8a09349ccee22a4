"""Generates text with the model of a run.

  python -m launch.generate --workdir=runs/demo --prompt="def main(" \\
      --max_new_tokens=200 --temperature=0.8 --top_k=50 --seed=0

--chat holds a conversation with a dialogue model: /back takes the last turn
back, /again answers it otherwise, /reset starts a new one, an empty line or
Ctrl-D ends it. --prompts_file reads one prompt per line, and
--prompts_file=- standard input. --json writes one object per prompt, with the
keys prompt, text, tokens, reason and logprob.
"""

import contextlib
import dataclasses
import sys

from absl import flags

from launch import command
from rnn_jax import errors
from rnn_jax.system import activity
from rnn_jax.system import files
from rnn_jax.system import streams

PURPOSE = 'Use'
WORKDIR, CHECKPOINT = command.define_run()
PROMPT = flags.DEFINE_string('prompt', None, 'Text to continue.')
PROMPTS_FILE = flags.DEFINE_string(
  'prompts_file', None, 'File with one prompt per line; -: standard input.'
)
CONTINUES = flags.DEFINE_boolean(
  'continues', False, 'Prompts continue a document; they do not start one.'
)
SAMPLES = flags.DEFINE_integer('samples', 1, 'Texts per prompt.')
MIN_NEW_TOKENS = flags.DEFINE_integer(
  'min_new_tokens', 0, 'Least tokens before a document or reply may end.'
)
MAX_NEW_TOKENS = flags.DEFINE_integer(
  'max_new_tokens', 200, 'Tokens to generate at most.'
)
TEMPERATURE = flags.DEFINE_float(
  'temperature', 1.0, 'Sampling temperature; 0: greedy.'
)
TOP_K = flags.DEFINE_integer(
  'top_k', 0, 'Sample from the K most likely tokens; 0: from all.'
)
TOP_P = flags.DEFINE_float(
  'top_p', 1.0, 'Nucleus sampling: probability mass, in (0, 1].'
)
SEED = flags.DEFINE_integer('seed', 0, 'Seed of the sampling.')
STOP = flags.DEFINE_multi_string('stop', [], 'Stop at this text')
STREAM = flags.DEFINE_boolean(
  'stream',
  None,
  'Print tokens as they are generated. Default: on a terminal, for one text.',
)
CHAT = flags.DEFINE_boolean('chat', False, 'Hold a conversation.')
JSON = flags.DEFINE_boolean('json', False, 'Print JSON lines.')
WEIGHTS = flags.DEFINE_enum(
  'weights',
  'float32',
  ['float32', 'bfloat16', 'int8', 'int8_blocks', 'int4'],
  'Format of the weights in memory.',
)
STATES = flags.DEFINE_enum(
  'states',
  'float32',
  ['float32', 'bfloat16'],
  'Format of matrix states between two steps.',
)
DRAFT_TOKENS = flags.DEFINE_integer(
  'draft_tokens',
  0,
  'Tokens that the text may repeat, checked at a time; 0: none are.',
)
DRAFT_WORKDIR = flags.DEFINE_string(
  'draft_workdir',
  None,
  'Run of a small model, with the same tokenizer, that drafts --draft_tokens. '
  'Default: the text itself does.',
)


def main(_):
  streams.stdout_is_the_result()
  prompts = _no_prompts() if CHAT.value else _prompts()
  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling
  from rnn_jax.runs import progress

  options = generate.Options(
    max_new_tokens=MAX_NEW_TOKENS.value,
    min_new_tokens=MIN_NEW_TOKENS.value,
    sampling=sampling.Sampling(TEMPERATURE.value, TOP_K.value, TOP_P.value),
    seed=SEED.value,
    stop=tuple(STOP.value),
    continues=CONTINUES.value,
    draft_tokens=DRAFT_TOKENS.value,
  )
  if DRAFT_WORKDIR.value is not None and not options.draft_tokens:
    errors.refuse(
      'draft_workdir',
      DRAFT_WORKDIR.value,
      'it drafts nothing with draft_tokens=0: give --draft_tokens=4',
    )
  generator = generate.Generator.from_workdir(
    WORKDIR.value,
    CHECKPOINT.value,
    WEIGHTS.value,
    batch_invariant=DRAFT_TOKENS.value > 0,
    states=STATES.value,
  )
  if DRAFT_WORKDIR.value is not None:
    draft = generate.Generator.from_workdir(DRAFT_WORKDIR.value)
    generator.draft_by(draft, DRAFT_WORKDIR.value)
  if CHAT.value:
    _chat(generator, options)
    return
  stream = STREAM.value
  if stream is None:
    stream = len(prompts) == 1 and sys.stdout.isatty() and not JSON.value
  if stream:
    before = progress.sample(prompts[0], '', generator.prompts.asks)
    print(before, end='', flush=True)
    generator.generate(prompts, options, _show)
    print()
    return
  for completion in generator.generate(prompts, options).completions:
    if JSON.value:
      described = dataclasses.asdict(completion)
      described['logprob'] = completion.logprob
      print(files.to_json(described, ensure_ascii=False))
    else:
      asked, text = completion.prompt, completion.text
      print(progress.sample(asked, text, generator.prompts.asks))


def _chat(generator, options):
  """Reads turns from the terminal, or from a pipe, until the input ends."""
  from rnn_jax.inference import conversation

  talk = conversation.Conversation(generator, options)
  asks = sys.stdin.isatty()
  while turn := _read_turn(asks):
    listener = _show if asks else None
    try:
      if turn in ('/reset', '/back'):
        talk.reset() if turn == '/reset' else talk.back()
        continue
      again = turn == '/again'
      reply = talk.again(listener) if again else talk.say(turn, listener)
    except errors.InputError as error:
      print(f'error: {error}', file=sys.stderr)
      continue
    print('' if asks else reply, flush=True)


def _read_turn(asks):
  """Returns the next turn; '' at the end."""
  with activity.waiting(), contextlib.suppress(EOFError):
    return input('> ' if asks else '').strip()
  return ''


def _show(_, text):
  print(text, end='', flush=True)
  activity.spoke()


def _no_prompts():
  """Returns []; refuses flags that have no effect in a conversation."""
  unused = (PROMPT, PROMPTS_FILE, SAMPLES, STREAM, JSON, CONTINUES)
  for flag in unused:
    if flag.present:
      raise errors.InputError(
        f'{flag.name}={flag.value!r}: it has no effect with --chat: leave '
        'it out'
      )
  return []


def _prompts():
  """Returns the prompts of the flags, each SAMPLES times."""
  if SAMPLES.value < 1:
    raise errors.InputError(f'samples={SAMPLES.value}: give 1 or more')
  if (PROMPT.value is None) == (PROMPTS_FILE.value is None):
    raise errors.InputError('give either --prompt or --prompts_file')
  prompts = [PROMPT.value]
  if PROMPTS_FILE.value is not None:
    from rnn_jax.inference import prompts as prompts_lib

    prompts = prompts_lib.read(PROMPTS_FILE.value)
  elif not PROMPT.value:
    raise errors.InputError("prompt='' is empty: give some text to continue")
  if STREAM.value and (len(prompts) * SAMPLES.value > 1 or JSON.value):
    raise errors.InputError(
      'stream=True: it prints one text, not several and not JSON: leave it out'
    )
  return [prompt for prompt in prompts for _ in range(SAMPLES.value)]


if __name__ == '__main__':
  command.run(main)
