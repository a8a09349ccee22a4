"""How texts are split before byte pairs are merged, by llama.cpp's names.

A name stands for an expression that llama.cpp has in C++, and a tokenizer.json
in its pre_tokenizer. The expressions are those of the published tokenizers.
"""

from collections.abc import Mapping
from typing import Any

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
LETTERS = CONTRACTIONS + r'|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}'
QWEN2, LLAMA3 = LETTERS + REST, LETTERS + '{1,3}' + REST
QWEN35 = (
  CONTRACTIONS
  + r'|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}'
  + r'| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
GPT2 = {
  'type': 'ByteLevel',
  'add_prefix_space': False,
  'trim_offsets': True,
  'use_regex': True,
}
DIGITS = {'type': 'Digits', 'individual_digits': True}
READ = ('type', 'pattern', 'behavior', 'individual_digits')  # of a part


def _sequence(*parts):
  return {'type': 'Sequence', 'pretokenizers': [*parts]}


def _by_expression(expression):
  split = {
    'type': 'Split',
    'pattern': {'Regex': expression},
    'behavior': 'Isolated',
    'invert': False,
  }
  return _sequence(split, GPT2 | {'use_regex': False})


FORMS = {  # the first name of each is written
  ('gpt-2', 'phi-2', 'modern-bert', 'mpt', 'olmo', 'jais'): GPT2,
  ('qwen2', 'stablelm2', 'hunyuan'): _by_expression(QWEN2),
  ('llama-bpe', 'llama3', 'llama-v3', 'falcon3', 'pixtral', 'lfm2'): (
    _by_expression(LLAMA3)
  ),
  ('smaug-bpe', 'dbrx'): _by_expression(LLAMA3),
  ('qwen35',): _by_expression(QWEN35),
  ('starcoder', 'refact', 'command-r', 'smollm', 'codeshell', 'exaone'): (
    _sequence(DIGITS, GPT2)
  ),
}
KNOWN = tuple(name for names in FORMS for name in names)
DEFAULT = 'default'


def describe(name: str) -> dict[str, Any]:
  """Returns the pre_tokenizer of a name of KNOWN."""
  return next(form for names, form in FORMS.items() if name in names)


def takes_words(name: str) -> bool:
  """Returns whether a word that is a token is taken, whatever its merges."""
  return any('llama-bpe' in names and name in names for names in FORMS)


def name_of(model: Mapping[str, Any]) -> str | None:
  """Returns the name for a tokenizer.json; None: there is none."""
  if not model['model'].get('merges'):
    return KNOWN[0]  # bytes are the same however a text is split
  if model.get('normalizer') not in (None, {'type': 'NFC'}):
    return None
  given = _plain(model.get('pre_tokenizer'))
  whole = bool(model['model'].get('ignore_merges'))
  for (name, *_), form in FORMS.items():
    if _plain(form) == given and takes_words(name) == whole:
      return name
  return None


def _plain(part):
  """Returns what decides where a text is split."""
  if part is None:
    return None
  if part['type'] == 'Sequence':
    return [_plain(x) for x in part['pretokenizers']]
  own = {name: part[name] for name in READ if name in part}
  if part['type'] == 'ByteLevel':
    own['use_regex'] = part.get('use_regex', True)
  flags = 'add_prefix_space', 'invert'
  return own | {name: True for name in flags if part.get(name)}
