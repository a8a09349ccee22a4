"""Conversations that another process continues from their states' bytes.

    python -m benchmarks.workloads.serving.handover FOLDER

continues the conversations of FOLDER/states.json with the model of FOLDER/model
and writes FOLDER/answers.json.
"""

import base64
import json
import pathlib
import subprocess
import sys
import tempfile

import jax
import numpy as np

from benchmarks.harness import measure
from benchmarks.harness import workers
from benchmarks.workloads.serving import model as model_lib
from rnn_jax.data.text import turns as turns_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving import requests as requests_lib
from rnn_jax.serving import states

KEY = b'of this comparison only, 32 bytes'
LETTERS = 'abcdefghijklmnopqrstuvwxyz     '


def to_another_process(
  conversations: int,
  new_tokens: int = 32,
  words: int = 2000,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """How many next turns differ in a bit, and the bytes of a state.

  Each conversation has a turn of up to `words` characters and its answer; the
  next turn is answered from the state by this process and by another one, and
  after reading the whole conversation.
  """
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    bundle_lib.write(model_lib.make(overrides), folder / 'model')
    engine = _engine(folder)
    rng = np.random.default_rng(0)
    asked, here, whole, sizes = [], [], [], []
    for seed in range(conversations):
      turns = [_turn(rng, words), _turn(rng, 100)]
      state, ids = _begin(engine, turns, new_tokens)
      data = states.dump(state, KEY)
      sizes.append(len(data))
      asked.append(
        {
          'state': base64.b64encode(data).decode(),
          'turn': turns[1],
          'seed': seed,
          'new_tokens': new_tokens,
        }
      )
      here.append(_continue(engine, asked[-1]))
      whole.append(_answer(engine, ids, seed, new_tokens))
    (folder / 'states.json').write_text(json.dumps(asked))
    command = [sys.executable, '-m', __name__, name]
    subprocess.run(command, cwd=workers.ROOT, check=True)
    there = json.loads((folder / 'answers.json').read_text())
    facts = model_lib.facts(engine.model().generator)
  return facts | {
    'conversations': conversations,
    'tokens': sum(len(ids) for ids, _ in here),
    'different': sum(a != b for a, b in zip(here, there, strict=True)),
    'different_from_whole': sum(
      a != b for a, b in zip(whole, there, strict=True)
    ),
    'bytes': max(sizes),
  }


def _engine(folder):
  bundle = bundle_lib.read(folder / 'model', 'latest')
  return engine_lib.Engine(model_lib.of_turns(bundle))


def _turn(rng, longest):
  letters = rng.integers(0, len(LETTERS), rng.integers(1, longest + 1))
  return 'a' + ''.join(LETTERS[n] for n in letters) + '.'


def _begin(engine, turns, new_tokens):
  """The state after a turn and its answer; the ids up to the next answer."""
  model = engine.model().generator
  first = model.encode_turns(turns_lib.alternate(turns[:1]))
  options = requests_lib.Options(
    max_new_tokens=new_tokens, returns_state=True, stop_at_boundary=True
  )
  (reply,) = engine.generate([first], options)
  answer = reply.completions[0].tokens
  ended = answer[-1] == model.tokenizer.boundary
  second = model.encode_turns(turns_lib.alternate(turns[1:]), ended)
  answer = np.array(answer, np.int32)
  return reply.state, np.concatenate([first, answer, second])


def _answer(engine, prompt, seed, new_tokens, state=None):
  """[ids, the bits of their log-probabilities], as JSON has them."""
  handle = engine.submit(
    prompt,
    requests_lib.Options(max_new_tokens=new_tokens, seed=seed, state=state),
  )
  while not handle.done:
    engine.step()
  (completion,) = handle.result().completions
  return [[*completion.tokens], [x.hex() for x in completion.logprobs]]


def _continue(engine, asked):
  data = base64.b64decode(asked['state'])
  state = engine.model().load_state(data, KEY)
  return _answer(
    engine, asked['turn'], asked['seed'], asked['new_tokens'], state
  )


def main(folder: pathlib.Path) -> None:
  """Continues the conversations of a folder."""
  jax.config.update('jax_enable_compilation_cache', False)
  engine = _engine(folder)
  asked = json.loads((folder / 'states.json').read_text())
  answers = [_continue(engine, each) for each in asked]
  (folder / 'answers.json').write_text(json.dumps(answers))


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]))
