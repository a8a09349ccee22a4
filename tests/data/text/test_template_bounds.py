"""Chat templates that explode, and that ordinary ones write what Jinja does."""

import json

import jinja2.ext
import jinja2.sandbox
import pytest

from rnn_jax import errors
from rnn_jax.data.text import chat_template
from rnn_jax.data.text import template_meter
from rnn_jax.data.text import template_sandbox
from tests.support import chats

MESSAGES = [
  chat_template.Message('system', 'Be "kind" & <brief>.\n\n- é \U0001f60a'),
  *3 * [chat_template.QUESTION, chat_template.ANSWER],
]
GROW = (
  '{% set ns = namespace(x=(1, 2), s="abcdefgh") %}{% for i in range(70) %}'
)
NEST = GROW + '{% set ns.x = (ns.x, ns.x) %}{% endfor %}'
MIB = '{% set s = "a" * 1000000 %}'
LARGE, WIDE, STEPS = 'a value of .* MiB', 'a width of', 'more than .* steps'
DEEP, PARTS = 'too deep', 'more than 32,768 parts'
EXPLODE = (
  # Operators.
  ('{{ "a" * 4500000000 }}', LARGE),
  ('{{ 4500000000 * "a" }}', LARGE),
  ('{% set x = [0] * 1000000000 %}', LARGE),
  ('{{ 9 ** (9 ** 9) }}', 'an integer of .* bits'),
  ('{% set x = "%4000000000d" % 3 %}', WIDE),
  ('{% set x = "%*d" % (4000000000, 3) %}', WIDE),
  ('{% set x = "%.4000000000f" % 3.0 %}', WIDE),
  (MIB + '{{ "%(a)s" * 1000 % {"a": s} }}', LARGE),
  (GROW + '{% set ns.s = ns.s + ns.s %}{% endfor %}', LARGE),
  (GROW + '{% set ns.s = ns.s ~ ns.s %}{% endfor %}', LARGE),
  (GROW + '{% set ns.x = ns.x + ns.x %}{% endfor %}', LARGE),
  (
    GROW + '{% set y %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = y %}'
    '{% endfor %}',
    LARGE,
  ),
  # Values that hold others twice, seventy times.
  (NEST + '{{ ns.x }}', LARGE),
  (NEST + '{{ ns.x == ns.x[0] }}', LARGE),
  (NEST + '{{ ns.x in [1] }}', LARGE),
  (NEST + '{{ {ns.x: 1} }}', LARGE),
  (NEST + '{{ {}[ns.x] }}', LARGE),
  (NEST + '{{ {}.get(ns.x) }}', LARGE),
  (NEST + '{{ ns.x | tojson }}', LARGE),
  (NEST + '{{ [ns.x] | unique | list }}', LARGE),
  (NEST + '{{ "{}".format(ns.x) }}', LARGE),
  (NEST + '{{ "%s" % [ns.x] }}', LARGE),
  (NEST + '{% for i in [1, 2] %}{{ loop.changed(ns.x) }}{% endfor %}', LARGE),
  ('{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}', LARGE),
  # Methods and filters.
  ('{{ "a" | center(4000000000) }}', WIDE),
  ('{% set x = "a".center(4000000000) %}', WIDE),
  ('{{ "a".ljust(4000000000) }}{{ "a".zfill(4000000000) }}', WIDE),
  ('{{ "\\t".expandtabs(4000000000) }}', WIDE),
  ('{{ "a" | indent(4000000000, true) }}', WIDE),
  (MIB + '{{ ("a\\n" * 100000) | indent(s) }}', LARGE),
  ('{{ [1] | batch(4000000000, 0) | list }}', WIDE),
  ('{{ [1] | slice(4000000000) | list }}', WIDE),
  ('{{ 3.5 | round(4000000000, "ceil") }}', WIDE),
  ('{{ [1] | tojson(indent=4000000000) }}', WIDE),
  (MIB + '{{ range(100) | list | tojson(separators=(s, s)) }}', LARGE),
  ('{{ "{:4000000000}".format(1) }}', WIDE),
  ('{{ "{:{w}}".format(1, w=4000000000) }}', WIDE),
  ('{{ "{x:4000000000}".format_map({"x": 1}) }}', WIDE),
  ('{{ "%4000000000d" | format(3) }}', WIDE),
  (MIB + '{{ range(100000) | join(s) }}', LARGE),
  (MIB + '{{ s.join("ab" * 1000) }}', LARGE),
  (MIB + '{{ s | replace("a", s) }}', LARGE),
  (MIB + '{{ s.replace("", s) }}', LARGE),
  (MIB + '{{ s.translate({97: s}) }}', LARGE),
  (MIB + '{{ s | wordwrap(1, wrapstring=s) }}', LARGE),
  (MIB + '{{ s | striptags }}', STEPS),
  (MIB + '{{ s | urlize }}', STEPS),
  (MIB + '{{ [s] | map(attribute=s) | list }}', 'a name of more than 1,000'),
  ('{{ ("a " * 1000000).split() }}', LARGE),
  ('{{ (1).to_bytes(4000000000, "big") }}', WIDE),
  ('{{ lipsum(n=4000000000) }}', WIDE),
  ('{{ range(4000000000) }}', 'Range too big'),
  ('{{ range(100000) | list + range(100000) | list }}', LARGE),
  ('{{ strftime_now("%c" * 1000) }}', 'a format of 2,000 characters'),
  # Loops and calls.
  (
    '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}'
    '{% endfor %}',
    STEPS,
  ),
  (
    '{% for a in range(99999) %}{% for b in range(99999) if false %}'
    '{% endfor %}{% endfor %}',
    STEPS,
  ),
  ('{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}', STEPS),
  (MIB + '{% for a in range(99999) %}{{ "b" in s }}{% endfor %}', STEPS),
  (MIB + '{% for a in range(99999) %}{{ s[1:] }}{% endfor %}', STEPS),
  ('{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}', DEEP),
  ('{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', DEEP),
  ('{% block f %}{{ self.f() }}{% endblock %}', DEEP),
  # Sources.
  ('{{ ' + '(' * 30_000, DEEP),
  ('{{ ' + 'not ' * 10_000 + '1 }}', DEEP),
  ('{% if a %}' * 2_000, DEEP),
  ('{{ a' + '.a' * 20_000 + ' }}', PARTS),
  ('{{ a }}' * 15_000, PARTS),
  ('a' * 1_000_000, '1,000,000 characters, and may have 131,072'),
  ('{{ ' + '9' * 5000 + ' }}', 'integer string conversion'),
)
ORDINARY = """
{%- macro shown(n) %}<{{ caller(n) }}>{% endmacro -%}
{%- for m in messages if m.role != 'none' -%}
{{ loop.index }}/{{ loop.length }} {{ m.role }}: {{ m['content'] | trim }}
{{ m | tojson }}{{ m | tojson(indent=2) }}{{ m.items() | list }}{{ m }}
{%- if loop.index == 3 %}{% break %}{% endif %}
{%- endfor %}
{{ {'b': 1, 'a': [none]} | tojson(separators=(',', ':'), sort_keys=true) }}
{{ 'a' ~ 1 ~ none ~ [1] ~ missing }}
{{ messages | map(attribute='role') | join(', ') }}
{{ '%s-%05d|%-9s|' % ('a', 3, 'b') }}{{ '{:>5}{x!r}'.format('a', x='b') }}
{{ 'a\nb' | indent(2, true) }}{{ 'ab' | replace('a', 'c') | upper | center(9) }}
{{ messages | groupby('role') | map('first') | list }}{{ 7 // 2 }}
{{ 2 ** 10 }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{% for k, v in {'x': 1, 'y': 0} | dictsort if v %}{{ k }}{{ loop.length }}
{%- endfor %}
{% autoescape true %}{{ '<a>' ~ '&' }}{{ '<b>' }}{{ ('%s' | safe) % '<' }}
{{ ('{}' | safe).format('<') }}{% endautoescape %}{{ [3, 1] | sort | sum }}
{{ [1, 2, 3] | batch(2, 0) | list }}{{ 'a,b'.split(',') }}
{{ messages[1:-1][0] }}
{% call(x) shown(2) %}{{ x }}{% endcall %}{% filter upper %}q{% endfilter %}
{% for a in [[1, [2]], [3]] recursive %}{{ loop(a) if a is iterable else a }}
{%- endfor %}{% block z %}z{% endblock %}{{ (1, 2) in [(1, 2)] }}
{{ 1 < 2 <= 3 }}
{% set ns = namespace(n=0) %}{% for c in 'abc' %}{% set ns.n = ns.n + 1 %}
{{- c }}
{%- endfor %}{{ ns.n }}{{ '</think>' in messages[0].content }}{{ 'ab' * 3 }}
{%- generation %}{{ messages[0].content.split('\n')[-1].lstrip('- ') }}
{%- endgeneration %}{{ messages | pprint }}
{{ '%.3f' | format(1 / 3) }}{{ 3.14159 | round(2) }}
"""


@pytest.mark.parametrize(('template', 'words'), EXPLODE)
def test_a_template_that_explodes_ends_with_a_line(template, words):
  with pytest.raises(errors.InputError, match=words) as refused:
    chat_template.Template(template, {}, '</s>').render(MESSAGES, True)
  line = str(refused.value)
  assert line.startswith("the model's chat template: ")
  assert '\n' not in line and len(line) < 600


@pytest.mark.parametrize('template', ('{% for', '{{ ' + '(' * 30_000))
def test_names_of_a_template_that_cannot_be_read(template):
  with pytest.raises(errors.InputError, match="the model's chat template: "):
    chat_template.names(template)


def test_an_error_names_the_line():
  template = 'a\n\n{{ messages[0].content * 10000000 }}'
  with pytest.raises(errors.InputError, match='template: line 3: it fails'):
    chat_template.Template(template, {}, '</s>').render(MESSAGES, True)


@pytest.mark.parametrize(
  'template',
  (ORDINARY, chats.CHATML, chats.LLAMA3, chats.INST, chats.FORGETS),
)
def test_what_an_ordinary_template_writes_is_what_jinja_writes(template):
  plain = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[template_sandbox.Generation, jinja2.ext.loopcontrols],
  )
  plain.filters['tojson'] = lambda value, **options: json.dumps(
    value, ensure_ascii=False, **options
  )
  for reply in (True, False):
    want = plain.from_string(template).render(
      messages=[message._asdict() for message in MESSAGES],
      add_generation_prompt=reply,
      tools=None,
      documents=None,
      **chats.TOKENS,
    )
    made = chat_template.Template(template, chats.TOKENS, '</s>')
    assert made.render(MESSAGES, reply) == want


def test_a_long_conversation_may_take_more():
  """What a rendering may use grows with its messages."""
  many = [*MESSAGES, chat_template.Message('user', 'a' * 20_000_000)]
  made = chat_template.Template(chats.LLAMA3, chats.TOKENS, '</s>')
  assert len(made.render(many, True)) > 20_000_000
  with template_meter.measured(many) as meter:
    assert meter.value > 16 * 20_000_000
