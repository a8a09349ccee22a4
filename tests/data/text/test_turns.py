"""Framings of turns: ids of rows that are written by hand."""

import json

import numpy as np
import pytest
import tokenizers

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import chat_template
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import turns
from rnn_jax.data.text.examples import base
from rnn_jax.data.text.examples import dialogue
from tests.support import chats
from tests.support import corpora

SAID = ('hi', 'hello', ' how?\nso? ', 'ok')
HELLO = turns.alternate(SAID)
BRIEF = [turns.Message('system', 'Be brief.'), *HELLO]
# Of each template: what is read and what is written of BRIEF, in turn.
PARTS = {
  'CHATML': (
    '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n'
    '<|im_start|>assistant\n',
    'hello<|im_end|>',
    '\n<|im_start|>user\n how?\nso? <|im_end|>\n<|im_start|>assistant\n',
    'ok<|im_end|>',
  ),
  'LLAMA3': (
    '<s><|start|>system<|end|>\n\nBe brief.<|eot|><|start|>user<|end|>\n\nhi'
    '<|eot|><|start|>assistant<|end|>\n\n',
    'hello<|eot|>',
    '<|start|>user<|end|>\n\nhow?\nso?<|eot|><|start|>assistant<|end|>\n\n',
    'ok<|eot|>',
  ),
}
CUT = {'CHATML': '<|im_end|>', 'LLAMA3': '<|eot|>'}


@pytest.fixture(name='tokenizer', params=PARTS)
def _tokenizer(request):
  return request.param, chats.make(getattr(chats, request.param))


def example(tokenizer, document, length=400, **task):
  options = base.Options(
    config_lib.section('task', name='dialogue', **task),
    config_lib.section('data'),
    length,
    None,
  )
  return dialogue.Dialogues(corpora.in_memory(document), tokenizer, options)


def row(parts):
  """The ids of parts, ~ of those that are only read."""
  ids = [np.array(chats.ids(part)) for part in parts]
  return np.concatenate([x if n % 2 else ~x for n, x in enumerate(ids)])


def test_only_what_the_assistant_writes_is_predicted(tokenizer):
  name, tokenizer = tokenizer
  made = example(tokenizer, turns.dump(BRIEF))
  np.testing.assert_array_equal(made.read(0), row(PARTS[name]))
  first = example(tokenizer, turns.dump(BRIEF), turns='first')
  np.testing.assert_array_equal(first.read(0), row(PARTS[name][:2]))
  # Whole turns stay, and nothing that is only read is last.
  size = len(row(PARTS[name][:3]))
  short = example(tokenizer, turns.dump(BRIEF), size).read(0)
  np.testing.assert_array_equal(short, row(PARTS[name][:2]))
  # A first part that is too long for its reply loses its beginning.
  size -= len(chats.ids(PARTS[name][2])) + 3
  short = example(tokenizer, turns.dump(BRIEF), size).read(0)
  np.testing.assert_array_equal(short, row(PARTS[name][:2])[2:])
  asks = turns.dump([*BRIEF, turns.Message('user', 'bye')])
  np.testing.assert_array_equal(
    example(tokenizer, asks).read(0), row(PARTS[name])
  )
  alone = turns.dump([turns.Message('user', 'a'), turns.Message('user', 'b')])
  assert not len(example(tokenizer, alone).read(0))


def test_a_prompt_is_the_beginning_of_a_row(tokenizer):
  name, tokenizer = tokenizer
  framing, parts = turns.of(tokenizer), PARTS[name]
  whole = np.concatenate([chats.ids(part) for part in parts])
  for said, read in ((2, 1), (4, 3)):
    got = framing.prompt(BRIEF[:said])
    want = chats.ids(''.join(parts[:read]))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, whole[: len(got)])
  after = framing.prompt(BRIEF[3:4], True)
  np.testing.assert_array_equal(after, chats.ids(parts[2]))
  cut_off = framing.prompt(BRIEF[3:4], False)
  np.testing.assert_array_equal(cut_off, chats.ids(CUT[name] + parts[2]))


def test_a_state_may_be_between_any_two_turns(tokenizer):
  name, tokenizer = tokenizer
  framing = turns.of(tokenizer)
  whole = chats.ids(''.join(PARTS[name][:3]))
  for count in (1, 3):
    read = framing.prompt(BRIEF[:count], None, False)
    assert read[-1] == tokenizer.boundary
    rest = framing.prompt(BRIEF[count:4], True)
    np.testing.assert_array_equal(np.concatenate([read, rest]), whole)


def test_lines_are_of_the_user_and_the_assistant_in_turn():
  assert turns.load(b'hi\n\nhello\nso') == turns.alternate(
    ['hi', 'hello', 'so']
  )
  assert turns.load(turns.dump(BRIEF).encode()) == BRIEF
  text = '[{"role": 1\nno'
  assert turns.load(text.encode()) == turns.alternate(text.split('\n'))


def test_without_a_template_turns_have_boundaries_whatever_their_role():
  tokenizer = tokenizer_lib.Bytes()
  end = tokenizer.boundary
  ids = example(tokenizer, turns.dump(BRIEF[:3])).read(0)
  want = [end, *b'Be brief.', end, *b'hi', end, *b'hello', end]
  np.testing.assert_array_equal(np.maximum(ids, ~ids), want)
  np.testing.assert_array_equal(ids >= 0, [0] * 11 + [1] * 9)
  framing = turns.of(tokenizer)
  said = framing.cleaned(HELLO[:1])
  for ended, ids in ((None, want[10:14]), (False, want[10:14])):
    np.testing.assert_array_equal(framing.prompt(said, ended), ids)
  np.testing.assert_array_equal(framing.prompt(said, True), want[11:14])


def test_the_template_travels_with_the_tokenizer(tokenizer, tmp_path):
  name, tokenizer = tokenizer
  tokenizer.save(tmp_path / 'tokenizer.json')
  back = tokenizer_lib.load(tmp_path / 'tokenizer.json')
  np.testing.assert_array_equal(
    turns.of(back).prompt(BRIEF[:2]), chats.ids(PARTS[name][0])
  )
  spec = tokenizer.spec()
  assert spec.pop('template')
  older = tokenizer_lib.from_spec(spec)
  assert older.template is None and older.spec() == spec
  assert older.digest() != tokenizer.digest()


@pytest.mark.parametrize(
  ('template', 'named'),
  (
    (chats.FORGETS, 'turn 1 reads otherwise once others follow'),
    ('{% for', "unexpected 'end of template'"),
    (chats.CHATML.replace("'user'", "'human'"), "'user'.*no role user"),
    (chats.LLAMA3.replace('<|eot|>', '\\n'), 'no special token ends a reply'),
    ('{{ messages[-1].content }}', "prompt for a reply doesn't begin"),
    (chats.INST.replace("'[INST] '", "loop.index ~ ' '"), 'it counts turns'),
    ("{{ ''.__class__.__mro__ }}", 'is unsafe'),
  ),
)
def test_a_template_that_cannot_frame_turns_is_refused(template, named):
  with pytest.raises(errors.InputError, match=f'chat template: .*{named}'):
    chat_template.names(template)
    chat_template.find_end(template, chats.TOKENS, chats.SPECIAL)


def test_a_turn_that_a_template_refuses_is_named():
  framing = turns.of(chats.make(chats.CHATML))
  with pytest.raises(errors.InputError, match=r"\['tool'\]: no role tool"):
    framing.prompt([turns.Message('tool', 'x')])
  open_ended = turns.of(chats.make(chats.INST))
  np.testing.assert_array_equal(
    open_ended.prompt(HELLO[:1], False), chats.ids('</s>[INST] hi [/INST]')
  )
  with pytest.raises(errors.InputError, match="isn't ended by '</s>'"):
    open_ended.prompt(HELLO[:1], None, False)


@pytest.mark.parametrize('pieces', ('prepended', 'first'))
def test_parts_have_the_ids_of_the_whole_text(pieces):
  """Also where a tokenizer puts a space before a text."""
  letters = sorted({*'\u2581', *''.join(SAID), *'[INST]/'})
  vocabulary = {letter: n for n, letter in enumerate(letters)}
  vocabulary |= {'\u2581h': len(letters), '<unk>': len(letters) + 1}
  model = tokenizers.models.BPE(
    vocabulary, [('\u2581', 'h')], unk_token='<unk>'
  )
  made = tokenizers.Tokenizer(model)
  if pieces == 'prepended':
    made.normalizer = tokenizers.normalizers.Sequence(
      [
        tokenizers.normalizers.Prepend('\u2581'),
        tokenizers.normalizers.Replace(' ', '\u2581'),
      ]
    )
  else:
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(
      prepend_scheme='first', split=False
    )
  made.add_special_tokens(['<s>', '</s>'])
  size = made.get_vocab_size()
  tokenizer = tokenizer_lib.Pretrained(
    json.loads(made.to_str()),
    size,
    made.token_to_id('</s>'),
    {'text': chats.INST, 'tokens': chats.TOKENS},
  )
  framing = turns.of(tokenizer)
  (ids,) = framing.encode([framing.parts(HELLO)])
  text = '<s>[INST] hi [/INST] hello</s>[INST]  how?\nso?  [/INST] ok</s>'
  whole = made.encode(text, add_special_tokens=False).ids
  assert np.concatenate(ids).tolist() == whole
  assert made.token_to_id('\u2581h') in ids[1]
  after = framing.prompt(HELLO[2:3], True)
  np.testing.assert_array_equal(after, ids[2])
