"""The launcher as typed, on a small random model."""

import json
import pathlib
import sys

import pytest
from absl import flags
from absl.testing import flagsaver

from launch import generate
from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.inference import model as model_lib
from tests.inference import runs
from tests.support import launchers

ROOT = pathlib.Path(__file__).parents[2]
LETTERS = tokenizer.Characters('\nabcdef')


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  return runs.make(folder, LETTERS, losses=(1.0,), boundary_bias=-100.0)


def main(**values):
  """Runs the launcher's main in this process."""
  with flagsaver.flagsaver(**values):
    generate.main([])


def test_writes_the_prompt_and_its_text(run, capsys):
  settings = {'workdir': str(run), 'max_new_tokens': 12, 'seed': 3}
  main(prompt='abc', json=True, **settings)
  completion = json.loads(capsys.readouterr().out)
  assert completion['prompt'] == 'abc'
  assert completion['text'] == LETTERS.decode(completion['tokens'])
  assert completion['reason'] in ('length', 'boundary')
  for stream in (False, True):
    main(prompt='abc', stream=stream, **settings)
    assert capsys.readouterr().out == f'abc{completion["text"]}\n'


def test_states_in_bfloat16_are_those_of_python(run, capsys):
  settings = {'workdir': str(run), 'max_new_tokens': 12, 'prompt': 'abc'}
  main(states='bfloat16', **settings)
  model = model_lib.load(run, states='bfloat16')
  assert model.generator.model.policy.states == 'bfloat16'
  (written,) = model.generate('abc', max_new_tokens=12)
  assert capsys.readouterr().out == f'abc{written.text}\n'
  with pytest.raises(errors.InputError, match="states='int8': choose one of"):
    main(states='int8', **settings)


@pytest.mark.native
def test_drafts_of_either_kind_write_the_same(run, capsys):
  settings = {'workdir': str(run), 'max_new_tokens': 12, 'prompt': 'abc'}
  texts = []
  for draft in ({}, {'draft_workdir': str(run)}):
    main(draft_tokens=3, **draft, **settings)
    texts.append(capsys.readouterr().out)
  assert texts[0] == texts[1] and len(texts[0]) > 5


def test_a_file_gives_a_prompt_a_line_and_samples_repeat_it(
  run, tmp_path, capsys, monkeypatch
):
  path = tmp_path / 'prompts.txt'
  path.write_bytes(b'abc\r\nfade\n')
  options = {
    'workdir': str(run),
    'samples': 2,
    'json': True,
    'temperature': 1.5,
    'max_new_tokens': 12,
  }
  main(prompts_file=str(path), **options)
  out = capsys.readouterr().out
  with path.open() as file:
    monkeypatch.setattr(sys, 'stdin', file)
    main(prompts_file='-', **options)
  assert capsys.readouterr().out == out
  rows = [json.loads(line) for line in out.splitlines()]
  assert [row['prompt'] for row in rows] == ['abc', 'abc', 'fade', 'fade']
  assert len({tuple(row['tokens']) for row in rows}) == 4


@pytest.mark.parametrize(
  ('values', 'message'),
  (
    ({}, 'give either --prompt or --prompts_file'),
    ({'prompt': 'a', 'prompts_file': 'b'}, 'give either --prompt or --prompts'),
    ({'prompt': ''}, "prompt='' is empty"),
    ({'prompts_file': 'absent.txt'}, "'absent.txt': No such file"),
    ({'prompts_file': '.'}, "prompts_file='.': Is a directory"),
    ({'prompt': 'a', 'samples': 0}, 'samples=0: give 1 or more'),
    ({'prompt': 'a', 'samples': 2, 'stream': True}, 'stream=True'),
    ({'prompt': 'a', 'json': True, 'stream': True}, 'stream=True'),
    ({'prompt': 'a', 'top_p': 0.0}, r'top_p=0.0: give a number in \(0, 1\]'),
    ({'prompt': 'a', 'top_p': 1.1}, 'top_p=1.1'),
    ({'prompt': 'a', 'temperature': -0.1}, 'temperature=-0.1'),
    ({'prompt': 'a', 'max_new_tokens': 0}, 'max_new_tokens=0'),
    ({'prompt': 'a', 'top_k': -1}, 'top_k=-1'),
    ({'prompt': 'a', 'stop': ['']}, "stop=''"),
    ({'prompt': 'a'}, "workdir='absent'"),
    (
      {'prompt': 'a', 'draft_workdir': 'small'},
      "draft_workdir='small': .*: give --draft_tokens",
    ),
    ({'prompt': 'a', 'workdir': str(ROOT)}, "is not a run's folder"),
  ),
  ids=str,
)
def test_bad_flags_are_refused_before_any_work(values, message):
  with pytest.raises(errors.InputError, match=message):
    main(**{'workdir': 'absent', **values})


@pytest.mark.parametrize(
  ('content', 'message'),
  (
    (b'', 'is empty: give a prompt'),
    (b'\n', 'is empty: give a prompt'),
    (b'a\n\nb\n', 'line 2 is empty'),
    (b'a\r\n\r\n', 'line 2 is empty'),
    (b'a\nb\xff\n', 'byte 3 is not utf-8'),
  ),
)
def test_bad_files_are_refused(tmp_path, content, message):
  path = tmp_path / 'prompts.txt'
  path.write_bytes(content)
  with pytest.raises(errors.InputError, match=f'prompts.txt.*{message}'):
    main(workdir='absent', prompts_file=str(path))


def test_characters_outside_the_vocabulary_are_named(run):
  with pytest.raises(errors.InputError, match="outside the vocabulary: '!z'"):
    main(workdir=str(run), prompt='abz!')


@pytest.mark.slow
def test_as_typed(run, tmp_path):
  settings = [f'--workdir={run}', '--prompt=abc', '--max_new_tokens=30']
  code, out, err = launchers.run('generate', *settings)
  assert (code, err) == (0, '')
  assert out.startswith('abc')
  text = out[3:-1]
  stops = '--stream', f'--stop={text[5:7]}', '--stop=q'
  code, out, err = launchers.run('generate', *settings, *stops)
  assert (code, err) == (0, '')
  assert out[3:-1] == text.partition(text[5:7])[0]
  bad = f'--workdir={tmp_path}', '--prompt=abc'
  code, _, err = launchers.run('generate', *bad)
  assert code == 1
  assert err.startswith('error: workdir=')
  assert err.count('\n') == 1


def test_every_flag_has_help():
  module = flags.FLAGS.flags_by_module_dict()['launch.generate']
  assert all(len(flag.help) > 5 for flag in module)
