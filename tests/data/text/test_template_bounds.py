"""Chat templates that explode, and that ordinary ones write what Jinja does."""

import json

import jinja2.ext
import jinja2.sandbox
import pytest

from rnn_jax import errors
from rnn_jax.data.text import apart
from rnn_jax.data.text import chat_template
from tests.support import chats

MESSAGES = [
  chat_template.Message('system', 'Be "kind" & <brief>.\n\n- é \U0001f60a'),
  *3 * [chat_template.QUESTION, chat_template.ANSWER],
]
GROW = (
  '{% set ns = namespace(x=(1, 2), s="abcdefgh") %}{% for i in range(70) %}'
)
NEST = GROW + '{% set ns.x = (ns.x, ns.x) %}{% endfor %}'
MEMORY, TIME = 'too much memory|its process ended', 'took more than 1 s'
DEEP = 'too deep|its process ended'
EXPLODE = (
  ('{{ "a" * 4500000000 }}', MEMORY),
  ('{% set x = [0] * 1000000000 %}', MEMORY),
  ('{% set x = "%4000000000d" % 3 %}', MEMORY),
  ('{{ "{:4000000000}".format(1) }}', MEMORY),
  ('{{ "a" | center(4000000000) }}', MEMORY),
  (GROW + '{% set ns.s = ns.s ~ ns.s %}{% endfor %}', MEMORY),
  (NEST + '{{ ns.x | tojson }}', f'{MEMORY}|{TIME}'),
  ('{{ 9 ** (9 ** 9) }}', f'{MEMORY}|{TIME}'),
  (
    '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}'
    '{% endfor %}',
    TIME,
  ),
  ('{{ range(4000000000) }}', 'Range too big'),
  ('{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', DEEP),
  ('{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}', DEEP),
  ('{{ ' + '(' * 30_000, DEEP),
  ('{% if a %}' * 2_000, DEEP),
  ('{{ a' + '.a' * 20_000 + ' }}', DEEP),
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


@pytest.mark.slow
@pytest.mark.parametrize(('template', 'words'), EXPLODE)
def test_a_template_that_explodes_ends_with_a_line(
  template, words, monkeypatch
):
  monkeypatch.setattr(apart, 'SECONDS', 1)
  monkeypatch.setitem(apart.START, 'template', 1)
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
  template = 'a\n\n{{ messages[0].content * 1000000000 }}'
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
    extensions=[jinja2.ext.loopcontrols],
  )
  plain.filters['tojson'] = lambda value, **options: json.dumps(
    value, ensure_ascii=False, **options
  )
  source = template.replace('{%- endgeneration', '{%- endif')
  source = source.replace('{%- generation', '{%- if true')
  for reply in (True, False):
    want = plain.from_string(source).render(
      messages=[message._asdict() for message in MESSAGES],
      add_generation_prompt=reply,
      tools=None,
      documents=None,
      **chats.TOKENS,
    )
    made = chat_template.Template(template, chats.TOKENS, '</s>')
    assert made.render(MESSAGES, reply) == want


def test_a_long_conversation_is_rendered():
  many = [*MESSAGES, chat_template.Message('user', 'a' * 20_000_000)]
  made = chat_template.Template(chats.LLAMA3, chats.TOKENS, '</s>')
  assert len(made.render(many, True)) > 20_000_000
