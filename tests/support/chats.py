"""Chat templates, and a tokenizer of bytes with their special tokens."""

import json

import tokenizers

from rnn_jax.data.text import chat_template
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_file

# Writes a system message of its own, and a line end after each turn.
CHATML = """
{%- if messages and messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('no role ' + message.role) }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
            {{- message.content + '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
# Begins with bos_token, strips texts, has no line ends between turns.
LLAMA3 = (
  "{{ bos_token }}{% for message in messages %}{{ '<|start|>' + "
  "message['role'] + '<|end|>\\n\\n' + message['content'] | trim + "
  "'<|eot|>' }}{% endfor %}{% if add_generation_prompt %}"
  "{{ '<|start|>assistant<|end|>\\n\\n' }}{% endif %}"
)
# Marks of a user's turn are text, and no token ends it.
INST = (
  "{{ bos_token }}{% for message in messages %}{% if message['role'] == "
  "'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}"
  "{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
# Drops a thought once another turn follows.
FORGETS = (
  "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
  "{% if message.role == 'assistant' and loop.last %}{{ '<think></think>' }}"
  "{% endif %}{{ message.content + '<|im_end|>' }}{% endfor %}"
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL = (
  *('<s>', '</s>', '<|im_start|>', '<|im_end|>'),
  *('<|start|>', '<|end|>', '<|eot|>'),
)
TOKENS = {'bos_token': '<s>', 'eos_token': '</s>'}


def spec():
  """A tokenizer.json: ids 0 to 255 are bytes, then those of SPECIAL."""
  names = {byte: name for name, byte in tokenizer_file.BYTE_NAMES.items()}
  vocabulary = {names[byte]: byte for byte in range(256)}
  made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
  made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  made.add_special_tokens([*SPECIAL])
  return json.loads(made.to_str())


SIZE = 256 + len(SPECIAL)


def make(template):
  """The tokenizer, with a template."""
  end = chat_template.find_end(template, TOKENS, SPECIAL)
  given = {'text': template, 'tokens': TOKENS}
  return tokenizer_lib.Pretrained(spec(), SIZE, ids(end)[0], given)


def ids(text):
  """The ids of a text, written again: special tokens, else bytes."""
  found = []
  while text:
    special = [x for x in SPECIAL if text.startswith(x)]
    found.append(
      256 + SPECIAL.index(special[0]) if special else text.encode()[0]
    )
    text = text[len(special[0]) if special else 1 :]
  return found
