"""Texts of strangers that explode: patterns, chat templates, tokenizers.

Each is small, and asks for more memory or time than a machine has.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.faults import base
from tests.faults import commands
from tests.faults import folders

HUGE = 4_000_000_000
PATTERNS = (
  ('nested repetitions', '(.*)*!'),
  ('repetitions of repetitions', '((.+)+)+!'),
  ('many repetitions', '.*' * 40 + '!'),
  ('equal alternatives', '(.|.)*!'),
  ('optional parts', '(.?){200}!'),
  ('100,000 parentheses', '(' * 100_000 + ')' * 100_000),
  ('900 parentheses', '(' * 450 + ')' * 450),
  ('great counts', '(((a{1000}){1000}){1000})'),
  ('a pattern of 10^6', 'a' * 10**6),
  ('a reference', '(a*)\\\\1'),
  ('a look-ahead', '(?!a).*'),
  ('a bracket', '['),
)
KEYS = {  # a key of the config: its value for a pattern
  'optimizer.frozen': '({!r},)',
  'optimizer.multipliers': '(({!r}, 0.5),)',
  'optimizer.weight_decays': '(({!r}, 0.5),)',
}
LOOP = (
  '{%% set ns = namespace(x=%s) %%}{%% for i in range(99) %%}%s{%% endfor %%}'
)
NESTED = LOOP % ('(1, 2)', '{% set ns.x = (ns.x, ns.x) %}')
LONG = '{% set s = "a" * 1000000 %}'
EACH = '{%% for a in range(99999) %%}%s{%% endfor %%}'
WRITTEN = '{{{{ {} }}}}'
EXPRESSIONS = (  # that a template writes
  *(f'"a" * {HUGE}', f'{HUGE} * "a"', f'[0] * {HUGE}', '9 ** (9 ** 9)'),
  *(f'"%{HUGE}d" % 3', f'"%*d" % ({HUGE}, 3)', f'"%.{HUGE}f" % 3.0'),
  *(f'"a" | center({HUGE})', f'"a".center({HUGE})', f'"a".ljust({HUGE})'),
  *(f'"a".rjust({HUGE})', f'"a".zfill({HUGE})', f'"\\t".expandtabs({HUGE})'),
  *(f'"a" | indent({HUGE}, true)', f'[1] | batch({HUGE}, 0) | list'),
  *(f'[1] | slice({HUGE}) | list', f'3.5 | round({HUGE}, "ceil")'),
  *(f'[1] | tojson(indent={HUGE})', f'"{{:{HUGE}}}".format(1)'),
  *(f'"{{:{{w}}}}".format(1, w={HUGE})', f'"%{HUGE}d" | format(3)'),
  *(f'(1).to_bytes({HUGE}, "big")', f'lipsum(n={HUGE})', f'range({HUGE})'),
  *(f'cycler(*range({HUGE}))', 'strftime_now("%c" * 9999)'),
)
OF_LONG = (  # of a text of 10^6
  *('range(99999) | join(s)', 's.join("ab" * 999)', 's | replace("a", s)'),
  *('s.replace("", s)', 's.translate({97: s})', '(s ~ s) | striptags'),
  *('s | urlize', 's | wordwrap(1, wrapstring=s)', '(s * 8).split("a")'),
  *('[s] | map(attribute=s) | list', '("%(a)s" * 999) % {"a": s}'),
  *('("{0}" * 999).format(s)', '(s ~ "é").encode("punycode")', '[s] * 99999'),
  *('("a\\n" * 9999) | indent(s)', '[s, s] | tojson(separators=(s, s))'),
)
OF_NESTED = (  # of a tuple that holds itself twice, 99 times
  *('ns.x', 'ns.x == ns.x[0]', 'ns.x in [1]', '{ns.x: 1}', '{}[ns.x]'),
  *('{}.get(ns.x)', 'ns.x | tojson', '[ns.x, 1] | unique | list', 'ns.x ~ 1'),
  *('"%s" % [ns.x]', '"{}".format(ns.x)', 'ns.x | pprint', 'ns.x | upper'),
)
PROGRAMS = (
  LOOP % ('"abcdefgh"', '{% set ns.x = ns.x + ns.x %}'),
  LOOP % ('"abcdefgh"', '{% set ns.x = ns.x ~ ns.x %}'),
  LOOP % ('[1, 2]', '{% set ns.x = ns.x + ns.x %}'),
  LOOP % ('3', '{% set ns.x = ns.x * ns.x %}'),
  LOOP % ('"a"', '{% set y %}{{ ns.x * 2 }}{% endset %}{% set ns.x = y %}'),
  EACH % (EACH % ''),
  EACH % '{% for b in range(99999) if false %}{% endfor %}',
  EACH % '{{ range(99999) | sum }}',
  EACH % '{{ loop.cycle(*range(99999)) }}',
  LONG + EACH % '{{ "b" in s }}',
  LONG + EACH % '{{ s[1:] }}',
  LONG + '{% autoescape true %}' + EACH % '{{ s }}' + '{% endautoescape %}',
  '{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}',
  '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}',
  '{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}',
  '{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}'
  '{% endmacro %}{{ f(50) }}',
  '{% block f %}{{ self.f() }}{% endblock %}',
  '{{ ' + '(' * 10**5,
  '{{ ' + 'not ' * 10**5 + '1 }}',
  '{% if a %}' * 10**4,
  '{{ a' + '.a' * 10**5 + ' }}',
  '{{ a' + ' + a' * 10**5 + ' }}',
  '{{ a }}' * 10**5,
  'a' * 10**7,
  '{{ ' + '9' * 10**5 + ' }}',
  '{{ raise_exception("a" * 10**6) }}',
)
CONFIG = (
  folders.MODEL
  | folders.ARCHITECTURES['llama']
  | {'model_type': 'llama', 'vocab_size': 300}
)


def texts(shared: base.Base) -> Iterator[commands.Attempt]:
  """Gives patterns to a training, templates and tokenizers to commands."""
  for key, form in KEYS.items():
    for name, pattern in PATTERNS:
      yield commands.Attempt(
        f'train: {key} of {name}',
        'train',
        _trained(shared, key, form.format(pattern)),
        says=key,
      )
  for template in _templates():
    yield commands.Attempt(
      f'convert: a template {template[:60]!r} of {len(template):,} characters',
      'convert',
      _converted(template),
      says='chat.template',
    )
  for name, changes in _tokenizers():
    for launcher, *flags in (
      ('generate', '--prompt=aaaa aaaab', '--max_new_tokens=2'),
      ('evaluate',),
    ):
      yield commands.Attempt(
        f'{launcher}: a tokenizer with {name}',
        launcher,
        _opened(shared, tokenizer() | changes, flags),
        expects='either',
        says='tokenizer',
      )


def tokenizer() -> dict[str, Any]:
  """Returns a tokenizer.json over bytes, with an end token."""
  shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
  hidden = [byte for byte in range(256) if byte not in shown]
  names = {byte: chr(byte) for byte in shown}
  names |= {byte: chr(256 + n) for n, byte in enumerate(hidden)}
  return {
    'version': '1.0',
    'added_tokens': [added(256, '</s>')],
    'normalizer': None,
    'pre_tokenizer': by_bytes(),
    'decoder': {'type': 'ByteLevel', 'add_prefix_space': False},
    'model': {
      'type': 'BPE',
      'vocab': {names[byte]: byte for byte in range(256)},
      'merges': [],
    },
  }


def by_bytes() -> dict[str, Any]:
  """Returns the part of a tokenizer.json that makes bytes of a text."""
  return {
    'type': 'ByteLevel',
    'add_prefix_space': False,
    'trim_offsets': True,
    'use_regex': False,
  }


def added(number: int, content: str) -> dict[str, Any]:
  """Returns an added token of a tokenizer.json."""
  flags = ('single_word', 'lstrip', 'rstrip', 'normalized')
  return {
    'id': number,
    'content': content,
    'special': True,
    **dict.fromkeys(flags, False),
  }


def _templates():
  for expression in EXPRESSIONS:
    yield WRITTEN.format(expression)
  for expression in OF_LONG:
    yield LONG + WRITTEN.format(expression)
  for expression in OF_NESTED:
    yield NESTED + WRITTEN.format(expression)
  yield from PROGRAMS


def _tokenizers():
  """Yields (name, what is changed in a tokenizer.json)."""
  for expression in (
    *('(a+)+$', '(a|a)*$', '(a*)*b', '(.*)*!', '[^x]*[^x]*[^x]*(?=x)'),
    *('(' * 10**5, '((a{1,999}){1,999}){1,999}', '\\S+(?!\\S)', '[', '(?=)'),
  ):
    pattern = {'Regex': expression}
    split = {'type': 'Split', 'pattern': pattern, 'invert': False}
    split['behavior'] = 'Isolated'
    both = {'type': 'Sequence', 'pretokenizers': [split, by_bytes()]}
    yield f'an expression {expression[:20]!r}', {'pre_tokenizer': both}
  for name, parts in (
    ('5 nested replacements', 5 * [_replace('a', 'a' * 1000)]),
    ('20 doublings', 20 * [_replace('a', 'aa')]),
    ('a replacement of nothing', [_replace('', 'ab')]),
    ('a replacement of 10^6', [_replace('a', 'a' * 10**6)]),
    ('a beginning of 10^7', [{'type': 'Prepend', 'prepend': 'a' * 10**7}]),
    ('200 beginnings', 200 * [{'type': 'Prepend', 'prepend': 'a' * 9}]),
    ('10^5 normalizers', 10**5 * [{'type': 'NFC'}]),
    ('40 times the names of bytes', 40 * [{'type': 'ByteLevel'}]),
    ('a map that is cut', [_map('AAAA')]),
    ('a map of zeros', [_map('A' * 4000)]),
    ('an unknown normalizer', [{'type': 'Nothing'}]),
  ):
    yield name, {'normalizer': {'type': 'Sequence', 'normalizers': parts}}
  own = tokenizer()['model']
  for name, changes in (
    ('a merge of one', {'merges': [['a']]}),
    ('merges that are numbers', {'merges': [3]}),
    ('a merge of unknown tokens', {'merges': [['a', 'zz']]}),
    ('an end of words of 10^6', {'end_of_word_suffix': 'a' * 10**6}),
    ('a token of 10^6', {'vocab': {**own['vocab'], 'a' * 10**6: 256}}),
    ('an unknown model', {'type': 'Nothing'}),
  ):
    yield name, {'model': own | changes}
  yield 'an added token of 10^6', {'added_tokens': [added(256, 'x' * 10**6)]}


def _replace(text, content):
  return {'type': 'Replace', 'pattern': {'String': text}, 'content': content}


def _map(text):
  return {'type': 'Precompiled', 'precompiled_charsmap': text}


def _trained(shared, key, value):
  return lambda folder: [
    *shared.train(folder / 'run'),
    f'--config.{key}={value}',
  ]


def _converted(template):
  def arguments(folder):
    path = folders.write_folder(folder / 'llama', 'hf', CONFIG)
    (path / 'tokenizer.json').write_text(json.dumps(tokenizer()))
    (path / 'chat_template.jinja').write_text(template)
    return base.convert(folder, path, 'hf')

  return arguments


def _opened(shared, model, flags):
  spec = {'kind': 'pretrained', 'model': model, 'size': 257, 'boundary': 256}
  text = json.dumps(spec)
  return base.changed(
    shared.run,
    lambda run: (run / 'tokenizer.json').write_text(text),
    base.opened(*flags),
  )
