"""The tokenizer of a folder, and its chat template."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import chat_template
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_file
from rnn_jax.data.text import tokenizer_training
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import standard_tokenizer
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

TOKENIZER = 'tokenizer.json'
CONFIG = 'tokenizer_config.json'
TEMPLATE = 'chat_template.jinja'
BYTE_PAIRS = ('vocab.json', 'merges.txt')
# transformers writes it as the end of GPT-2's texts, whatever the vocabulary.
GPT2_END = 50256


def read(
  folder: pathlib.Path, keys: keys_lib.Keys, given: config_lib.Config | None
) -> tokenizer_lib.Tokenizer:
  """Returns a folder's tokenizer; numbers, if it has none.

  Args:
    folder: of the model.
    keys: of its config.json.
    given: the Config of --config, whose task may know no turns.

  Raises:
    InputError: a file is damaged, or can't be used.
  """
  path, size = folder / TOKENIZER, keys.whole('vocab_size')
  template, boundary = None, _boundary(keys, size)
  if not path.exists():
    return _byte_pairs(folder) or tokenizer_lib.Numbers(size)
  model = keys_lib.read(path, files.LIMIT).values
  with usable(path):
    tokenizer_file.check(model, size)
  task = given and given.task
  has_turns = not task or task.answers and not task.classifies
  if has_turns and (source := _template(folder)):
    strings = _tokenizer_config(folder).values
    template, boundary = read_template(folder, source, strings, model)
  with usable(path):
    return tokenizer_lib.Pretrained(model, size, boundary, template)


def _byte_pairs(folder):
  """Returns the tokenizer of vocab.json and merges.txt, GPT-2's; else None."""
  vocabulary, merges = (folder / name for name in BYTE_PAIRS)
  if not (vocabulary.exists() and merges.exists()):
    return None
  keys = keys_lib.read(vocabulary, files.LIMIT)
  for name in keys.values:
    keys.whole(name, least=0)
  entries = dict(keys.values)
  boundary = standard_tokenizer.BOUNDARY
  if (last := entries.pop(boundary, None)) != len(entries):
    raise errors.InputError(
      f'{vocabulary}: {boundary}={last!r} is not the last of '
      f'{len(keys.values)} entries, as in GPT-2: remove the file to use ids '
      'only'
    )
  with files.reading(merges, f'get it and {vocabulary.name} again'):
    lines = files.read_text(merges).splitlines()
    pairs = [x.split(' ') for x in lines if x and x[:8] != '#version']
    return tokenizer_training.byte_pairs(entries, pairs)


@contextlib.contextmanager
def usable(
  path: pathlib.Path, remedy: str = 'remove it to use only ids'
) -> Iterator[None]:
  """Inside it a ValueError is about the tokenizer of this path.

  Raises:
    InputError: in its place.
  """
  try:
    yield
  except ValueError as error:
    raise errors.InputError(
      f"{path}: it isn't a tokenizer that can be used ({error}): {remedy}"
    ) from error


def _template(folder):
  """Returns the source of a chat template, '' for none."""
  if (folder / TEMPLATE).exists():
    return text(folder, TEMPLATE)
  keys = _tokenizer_config(folder)
  if not isinstance(keys.get('chat_template'), list):
    return keys.text('chat_template', '')
  for each in keys.items('chat_template'):  # of several by name
    if not isinstance(each, dict):
      keys.refuse('chat_template', each, 'give {name, template}')
    one = dataclasses.replace(keys, values=each)
    if one.text('name') == 'default':
      return one.text('template')
  return ''


def _tokenizer_config(folder):
  path = folder / CONFIG
  return keys_lib.read(path) if path.exists() else keys_lib.Keys(path, {})


def read_template(
  path: pathlib.Path,
  text: str,
  given: Mapping[str, Any],
  model: Mapping[str, Any],
) -> tuple[dict[str, Any], int]:
  """Returns (spec of a chat template, the id of the token that ends a reply).

  Args:
    path: that the template is of, for the message.
    text: its source.
    given: the strings of tokens that it may name, as 'eos_token'.
    model: what tokenizer.json holds.

  Raises:
    InputError: it can't frame turns.
  """
  ids = {x['content']: x['id'] for x in model.get('added_tokens') or []}
  try:
    tokens = {}
    for name in sorted(chat_template.names(text) & {*given}):
      value = given[name]
      value = value.get('content') if isinstance(value, dict) else value
      if isinstance(value, str):
        tokens[name] = value
    end = chat_template.find_end(text, tokens, ids)
  except errors.InputError as error:
    raise errors.InputError(
      f'{path}: {error}; or remove it to convert the model without turns'
    ) from error
  return {'text': text, 'tokens': tokens}, ids[end]


def write(bundle: bundle_lib.Bundle, folder: pathlib.Path) -> None:
  """Writes the tokenizer, and of its template what isn't kept."""
  pretrained = bundle.tokenizer.spec()['kind'] == 'pretrained'
  if not (pretrained or bundle.tokenizer.lossless):
    return
  if any(name in bundle.kept for name in BYTE_PAIRS):
    return  # it is there
  model = standard_tokenizer.describe_with_boundary(bundle.tokenizer)
  keys_lib.write(folder / TOKENIZER, model)
  template = bundle.tokenizer.template
  if template and _template(folder) != template.text:
    (folder / TEMPLATE).write_text(template.text, encoding='utf-8')
  if template and not (folder / CONFIG).exists():
    tokens = {'eos_token': template.end} | template.tokens
    kind = {'tokenizer_class': 'PreTrainedTokenizerFast'}
    keys_lib.write(folder / CONFIG, kind | tokens)


def _boundary(keys, size):
  """Returns the id that ends a text, else that which begins one."""
  for name in ('eos_token_id', 'bos_token_id'):
    if (value := keys.get(name)) is not None:
      first = value[0] if isinstance(value, list) and value else value
      if first == GPT2_END >= size:
        continue
      one = dataclasses.replace(keys, values={name: first})
      return one.whole(name, least=0, most=size - 1)
  return size - 1


def text(folder: pathlib.Path, name: str) -> str:
  """Returns the text of a small file of a folder."""
  path = folder / name
  with files.reading(path, 'put a text file of the model there, or remove it'):
    return files.read_text(path, files.SMALL)
