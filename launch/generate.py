"""Continues prompts with the model of a finished or running training run.

  python -m launch.generate --workdir=runs/demo --prompt="def main(" \\
      --max_new_tokens=200 --temperature=0.8 --top_k=50 --seed=0

With --chat you hold a conversation with a model of dialogues; /reset begins a
new one, an empty line or Ctrl-D ends it. With --prompts_file each line of a
file is a prompt; --json writes an object a prompt, with the keys prompt, text,
tokens, reason and logprob.
"""

import dataclasses
import json
import sys

from absl import flags

from launch import command
from rnn_jax import errors

WORKDIR = flags.DEFINE_string('workdir', None, 'The run.', required=True)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint', 'best', "'best', 'latest' or a step."
)
PROMPT = flags.DEFINE_string('prompt', None, 'The text to continue.')
PROMPTS_FILE = flags.DEFINE_string('prompts_file', None, 'A prompt a line.')
CONTINUES = flags.DEFINE_boolean(
  'continues', False, 'Prompts stand within a document, not at its start.'
)
SAMPLES = flags.DEFINE_integer('samples', 1, 'Texts a prompt.')
MIN_NEW_TOKENS = flags.DEFINE_integer(
  'min_new_tokens', 0, 'Tokens before a document, or a reply, may end.'
)
MAX_NEW_TOKENS = flags.DEFINE_integer('max_new_tokens', 200, 'Tokens to make.')
TEMPERATURE = flags.DEFINE_float('temperature', 1.0, '0: the likeliest token.')
TOP_K = flags.DEFINE_integer('top_k', 0, 'Likeliest tokens; 0: all.')
TOP_P = flags.DEFINE_float('top_p', 1.0, 'Mass of the nucleus, in (0, 1].')
SEED = flags.DEFINE_integer('seed', 0, 'Of the random numbers.')
STOP = flags.DEFINE_multi_string('stop', [], 'Ends a text; repeatable.')
STREAM = flags.DEFINE_boolean(
  'stream', None, 'Show text as it is made. Default: one text, on a terminal.'
)
CHAT = flags.DEFINE_boolean('chat', False, 'Hold a conversation.')
JSON = flags.DEFINE_boolean('json', False, 'Write JSON lines.')
WEIGHTS = flags.DEFINE_enum(
  'weights', 'float32', ['float32', 'int8'], 'What matrices are held as.'
)


def main(_):
  prompts = _no_prompts() if CHAT.value else _prompts()
  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling

  options = generate.Options(
    max_new_tokens=MAX_NEW_TOKENS.value,
    min_new_tokens=MIN_NEW_TOKENS.value,
    sampling=sampling.Sampling(TEMPERATURE.value, TOP_K.value, TOP_P.value),
    seed=SEED.value,
    stop=tuple(STOP.value),
    continues=CONTINUES.value,
  )
  generator = generate.Generator.from_workdir(
    WORKDIR.value, CHECKPOINT.value, WEIGHTS.value
  )
  if CHAT.value:
    _chat(generator, options)
    return
  stream = STREAM.value
  if stream is None:
    stream = len(prompts) == 1 and sys.stdout.isatty() and not JSON.value
  if stream:
    print(prompts[0], end='', flush=True)
    generator.generate(prompts, options, _show)
    print()
    return
  for completion in generator.generate(prompts, options).completions:
    if JSON.value:
      print(json.dumps(dataclasses.asdict(completion), ensure_ascii=False))
    else:
      print(completion.prompt + completion.text)


def _chat(generator, options):
  """Reads turns from the terminal, or from a pipe, until there is no more."""
  from rnn_jax.inference import conversation

  talk = conversation.Conversation(generator, options)
  asks = sys.stdin.isatty()
  while turn := _read_turn(asks):
    if turn == '/reset':
      talk.reset()
      continue
    try:
      reply = talk.say(turn, _show if asks else None)
    except errors.InputError as error:
      print(f'error: {error}', file=sys.stderr)
      continue
    print('' if asks else reply, flush=True)


def _read_turn(asks):
  """Returns the next turn; '' at the end."""
  try:
    return input('> ' if asks else '').strip()
  except EOFError:
    return ''


def _show(_, piece):
  print(piece, end='', flush=True)


def _no_prompts():
  """Returns []; refuses flags that a conversation has no use for."""
  unused = (PROMPT, PROMPTS_FILE, SAMPLES, STREAM, JSON, CONTINUES)
  for flag in unused:
    if flag.present:
      raise errors.InputError(
        f'{flag.name}={flag.value!r}: a conversation (--chat) has none: leave '
        'it out'
      )
  return []


def _prompts():
  """Returns the prompts that the flags name, each SAMPLES times."""
  if SAMPLES.value < 1:
    raise errors.InputError(f'samples={SAMPLES.value}: give 1 or more')
  if (PROMPT.value is None) == (PROMPTS_FILE.value is None):
    raise errors.InputError('give either --prompt or --prompts_file')
  prompts = [PROMPT.value]
  if PROMPTS_FILE.value is not None:
    prompts = _lines(PROMPTS_FILE.value)
  elif not PROMPT.value:
    raise errors.InputError("prompt='' is empty: give some text to continue")
  if STREAM.value and (len(prompts) * SAMPLES.value > 1 or JSON.value):
    raise errors.InputError('stream=True: it shows one text, and no JSON')
  return [prompt for prompt in prompts for _ in range(SAMPLES.value)]


def _lines(path):
  try:
    with open(path, encoding='utf-8', newline='\n') as file:
      lines = file.read().removesuffix('\n').split('\n')
  except OSError as error:
    raise errors.InputError(
      f'prompts_file={path!r}: {error.strerror}'
    ) from error
  except UnicodeDecodeError as error:
    raise errors.InputError(f'prompts_file={path!r}: {error}') from error
  lines = [line.removesuffix('\r') for line in lines]
  if lines == ['']:
    raise errors.InputError(f'prompts_file={path!r} is empty: give a prompt')
  for number, line in enumerate(lines, 1):
    if not line:
      raise errors.InputError(
        f'prompts_file={path!r}, line {number} is empty: take it out'
      )
  return lines


if __name__ == '__main__':
  command.run(main)
