"""What a body asks of the engine: forms become jobs, prompts become ids."""

import contextlib
import dataclasses
import secrets
from collections.abc import Iterator

import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import turns as turns_lib
from rnn_jax.inference import sampling
from rnn_jax.serving import constraint as constraint_lib
from rnn_jax.serving import requests
from rnn_jax.serving import work
from rnn_jax.serving.http import answers
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import service as service_lib
from rnn_jax.system import files

COMPLETION_TOKENS = 16  # as at OpenAI
SMALLEST_NUCLEUS = 1e-30  # a top_p that float32 can still multiply by
ANY_OBJECT = '{"type": "object"}'


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
  """A job of the engine for each prompt, and what is answered.

  Attributes:
    owner: who asks.
    jobs: with the ids that each reads, after its state.
    added: how many ids of each the server has put before those of the client.
    echoes: whether the answer begins with the prompts.
    writes: whether any token is wanted; else no job is submitted.
    shape: of the answer.
  """

  owner: str
  jobs: tuple[work.Job, ...]
  added: tuple[int, ...]
  echoes: bool
  writes: bool
  shape: answers.Shape


def of_completions(
  service: service_lib.Service, owner: str, form: schemas.Completions
) -> Plan:
  """Returns the plan of POST /v1/completions.

  Raises:
    ApiError, InputError: the model can't do it, or a limit is exceeded.
  """
  wanted = form.max_tokens
  wanted = COMPLETION_TOKENS if wanted is None else wanted
  if not wanted and not form.echo:
    raise http_errors.bad_request(
      'max_tokens=0: give 1 or more, or echo=true', 'max_tokens'
    )
  if form.state is not None and form.echo:
    raise http_errors.bad_request(
      'echo with a state, whose text is unknown: leave it out', 'echo'
    )
  adapter = service.adapter_of(form.model)
  served = service.engine.model(adapter)
  state = _state(service, owner, form, served)
  options = _options(service, form, adapter, state, wanted, len(form.prompt))
  prompts = [_read(served, form, state, each) for each in form.prompt]
  return _plan(service, owner, form, options, prompts)


def of_chat(
  service: service_lib.Service, owner: str, form: schemas.Chat
) -> Plan:
  """Returns the plan of POST /v1/chat/completions.

  Raises:
    ApiError, InputError: as `of_completions`; the model knows no turns.
  """
  adapter = service.adapter_of(form.model)
  served = service.engine.model(adapter)
  state = _state(service, owner, form, served)
  ids = _read_turns(served, form.messages, state, True)
  wanted = form.max_completion_tokens
  wanted = form.max_tokens if wanted is None else wanted
  if wanted is None:
    wanted = service.options.limits.new_tokens
    longest = served.prompts.longest
    if longest:
      wanted = max(1, min(wanted, longest + 1 - len(ids)))
  if not wanted:
    raise http_errors.bad_request('max_tokens=0: give 1 or more', 'max_tokens')
  options = _options(service, form, adapter, state, wanted, 1)
  return _plan(service, owner, form, options, [(ids, 0)])


def of_state(
  service: service_lib.Service, owner: str, form: schemas.NewState
) -> work.Job:
  """Returns the job that reads what a new state is of.

  Raises:
    ApiError, InputError: as `of_completions`.
  """
  adapter = service.adapter_of(form.model)
  if form.completion is not None:
    own, state, ids = service.conversations.recall(
      owner, form.completion, form.choice
    )
    if form.model is not None and own != adapter:
      raise http_errors.bad_request(
        f'model={form.model!r}: the completion is of {service.name(own)!r}: '
        'give that, or leave it out',
        'model',
      )
    adapter = own
  else:
    served = service.engine.model(adapter)
    state = _state(service, owner, form, served)
    if form.messages is not None:
      ids = _read_turns(served, form.messages, state, False)
    else:
      ids = _encode(served, form, state, form.prompt or '')
  options = requests.Options(
    max_new_tokens=0,
    state=state,
    returns_state=True,
    deadline_seconds=service.options.limits.seconds,
    adapter=adapter,
  )
  return _job(service, ids, options, form)


def _state(service, owner, form, served):
  """Returns the state that a form names, or None."""
  if form.state is None:
    return None
  return service.conversations.open(owner, form.state, served)


def _read(served, form, state, prompt):
  """Returns a prompt's ids, and how many of them the client hasn't given."""
  if isinstance(prompt, str):
    ids = _encode(served, form, state, prompt)
    begins = ids[:1].tolist() == [served.tokenizer.boundary]
    return ids, int(begins and not form.continues)
  ids, begin = np.array(prompt, np.int64), served.prompts.beginning
  # Tokens begin a text, as texts do.
  if state is not None or form.continues:
    return ids, 0
  if np.array_equal(ids[: len(begin)], begin):
    return ids, 0
  return np.concatenate([begin, ids]), len(begin)


def _encode(served, form, state, prompt):
  """Returns the ids of a text, after a state or a beginning."""
  ended = None if state is None else state.ended
  return served.prompts.encode(prompt, bool(form.continues), ended)


def _read_turns(served, messages, state, reply):
  """Returns the ids of turns; `reply`: whether the model's turn is next.

  Without a chat template a system message is a turn as any other.
  """
  if not served.prompts.asks:
    raise http_errors.bad_request(
      'this model was not trained on turns: use /v1/completions',
      None,
      'wrong_endpoint',
    )
  roles = {'developer': turns_lib.SYSTEM}  # OpenAI's newer name
  said = [
    turns_lib.Message(roles.get(each.role, each.role), each.content)
    for each in messages
  ]
  ended = None if state is None else state.ended
  return served.prompts.encode_turns(said, ended, reply)


def _options(service, form, adapter, state, wanted, prompts):
  """Returns how each prompt of a form is continued."""
  count = form.n or 1
  _check_wanted(service, form, prompts * count, wanted)
  return requests.Options(
    max_new_tokens=max(wanted, 1),
    sampling=_sampling(form),
    seed=secrets.randbelow(2**32) if form.seed is None else form.seed,
    stop=form.stop or (),
    stop_at_boundary=not form.ignore_eos,
    min_new_tokens=form.min_tokens or 0,
    n=count,
    alternatives=form.alternatives or 0,
    constraint=_constraint(form),
    state=state,
    returns_state=form.return_state is not None,
    deadline_seconds=service.options.limits.seconds,
    adapter=adapter,
  )


def _plan(service, owner, form, options, prompts):
  """Returns the plan for prompts of (ids, ids that the client hasn't given)."""
  jobs = []
  for number, (ids, _) in enumerate(prompts):
    own = dataclasses.replace(options, index=number * options.n)
    jobs.append(_job(service, ids, own, form))
  shape = answers.Shape(
    options.adapter,
    options.n,
    len(jobs),
    sum(len(ids) for ids, _ in prompts),
    form.alternatives,
    options.seed,
    isinstance(form, schemas.Chat),
  )
  added = tuple(added for _, added in prompts)
  writes = form.max_tokens != 0
  return Plan(owner, tuple(jobs), added, bool(form.echo), writes, shape)


def _job(service, ids, options, form):
  """Returns the job of a prompt that is no longer than allowed."""
  most = service.options.limits.prompt_tokens
  if len(ids) > most:
    raise http_errors.bad_request(
      f'the prompt has {len(ids):,} tokens, and {most:,} are allowed: give '
      'less, or make a state of its parts',
      'messages' if getattr(form, 'messages', None) else 'prompt',
      'context_length_exceeded',
    )
  with naming_constraint(form):
    return service.engine.job(ids, options)


def _check_wanted(service, form, texts, wanted):
  """Checks the number of texts, and of the tokens of each."""
  if texts > schemas.PROMPTS:
    raise http_errors.bad_request(
      f'n={form.n or 1} for several prompts makes {texts} texts: give at most '
      f'{schemas.PROMPTS} in all',
      'n',
    )
  most = service.options.limits.new_tokens
  if wanted > most:
    raise http_errors.bad_request(
      f'max_tokens={wanted}: at most {most} are allowed', 'max_tokens'
    )
  if form.return_state is not None and texts > 1:
    raise http_errors.bad_request(
      'return_state of several texts: give one prompt and n=1', 'return_state'
    )


def _sampling(form):
  names = [field.name for field in dataclasses.fields(sampling.Sampling)]
  given = {
    name: getattr(form, name)
    for name in names
    if getattr(form, name) is not None
  }
  # As at OpenAI, a nucleus without mass is the most likely token.
  if given.get('top_p') == 0:
    given['top_p'] = SMALLEST_NUCLEUS
  bias = {int(name): x for name, x in given.get('logit_bias', {}).items()}
  return sampling.Sampling(**given | {'logit_bias': bias})


def _constraint(form):
  """Returns what a form wants its text to be, or None."""
  wanted = form.response_format
  found = []
  if form.guided_json is not None:
    given = form.guided_json
    schema = given if isinstance(given, str) else files.to_json(given)
    found.append(('json_schema', schema))
  if form.guided_regex is not None:
    found.append(('regex', form.guided_regex))
  if wanted is not None and wanted.type == 'json_object':
    found.append(('json_schema', ANY_OBJECT))
  if wanted is not None and wanted.json_schema is not None:
    found.append(('json_schema', files.to_json(wanted.json_schema.schema_)))
  if wanted is not None and wanted.regex is not None:
    found.append(('regex', wanted.regex))
  if len(found) > 1:
    raise http_errors.bad_request(
      'give one of response_format, guided_json, guided_regex',
      'response_format',
    )
  if not found:
    return None
  with naming_constraint(form):
    return constraint_lib.Constraint(*found[0])


@contextlib.contextmanager
def naming_constraint(form: schemas.Asked) -> Iterator[None]:
  """Inside it what is wrong with a constraint names the form's field.

  Raises:
    ApiError: in place of an InputError of a constraint.
  """
  try:
    yield
  except errors.InputError as error:
    words = str(error)
    if not words.startswith('constraint'):
      raise
    given = ('guided_json', 'guided_regex')
    field = next(
      (name for name in given if getattr(form, name) is not None),
      'response_format',
    )
    words = words.removeprefix('constraint').removeprefix('.grammar')
    raise http_errors.bad_request(field + words, field) from None
