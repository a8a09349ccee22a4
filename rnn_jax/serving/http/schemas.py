"""The bodies of requests: OpenAI's fields, and a few of our own.

A field is one of four kinds: it does what it does at OpenAI; it is ours; it has
no effect here or there on the text, so that it is accepted (NO_EFFECT); or this
server can't honour it, so that any value but a neutral one is refused by name
(NEUTRAL). A field of no kind is refused as well.

Types are strict: '1' is not a number, and 1 is not a truth. A null, or an empty
list of an unknown name, is the same as no field, at any depth: clients send an
answer's message back with all the fields that their library knows.
"""

from typing import Annotated
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import TypeVar

import pydantic

from rnn_jax.serving.http import errors as http_errors
from rnn_jax.system import files

NO_EFFECT = frozenset(
  (
    'metadata',
    'parallel_tool_calls',
    'prompt_cache_key',
    'prompt_cache_options',
    'prompt_cache_retention',
    'safety_identifier',
    'service_tier',
    'store',
    'user',
  )
)
# Fields of OpenAI that change the answer in ways that this server lacks.
NEUTRAL: dict[str, tuple[Any, ...]] = {
  'audio': (),
  'dimensions': (),
  'function_call': ('none',),
  'functions': (),
  'modalities': (['text'],),
  'moderation': (),
  'prediction': (),
  'reasoning_effort': ('none',),
  'suffix': ('',),
  'tool_choice': ('none',),
  'tools': (),
  'verbosity': ('medium',),
  'web_search_options': (),
}
STOPS = 16  # stop strings of a request
PROMPTS = 128  # texts of a request
LARGEST = 2**31 - 1

Form = TypeVar('Form', bound='Object')
Count = Annotated[int, pydantic.Field(ge=0, le=LARGEST)]
# What values are whose checks are our own; for the description of the API.
STRINGS = {'type': 'array', 'items': {'type': 'string'}, 'minItems': 1}
TOKENS = {'type': 'array', 'items': {'type': 'integer'}, 'minItems': 1}
SEVERAL = {'type': 'array', 'items': TOKENS, 'minItems': 1}
OneOrMore = Annotated[
  Any, pydantic.WithJsonSchema({'anyOf': [{'type': 'string'}, STRINGS]})
]
Given = Annotated[
  Any,
  pydantic.WithJsonSchema(
    {'anyOf': [{'type': 'string'}, STRINGS, TOKENS, SEVERAL]}
  ),
]
Content = Annotated[
  Any,
  pydantic.WithJsonSchema(
    {
      'anyOf': [
        {'type': 'string'},
        {'type': 'array', 'items': {'type': 'object'}},
      ]
    }
  ),
]
Real = Annotated[float, pydantic.Field(allow_inf_nan=False)]


class Object(pydantic.BaseModel):
  """An object of JSON, whatever its depth."""

  model_config = pydantic.ConfigDict(
    extra='forbid', strict=True, protected_namespaces=(), frozen=True
  )
  nulls: ClassVar[tuple[str, ...]] = ()  # fields in which null says something

  @pydantic.model_validator(mode='before')
  @classmethod
  def _without_neutral(cls, value):
    if not isinstance(value, dict):
      return value
    known = {x.alias or name for name, x in cls.model_fields.items()}
    return {
      name: each
      for name, each in value.items()
      if (each is not None or name in cls.nulls)
      and (each != [] or name in known)
    }


class Asked(Object):
  """What all bodies share."""

  model: str | None = None


class StreamOptions(Object):
  """What a stream has besides its text."""

  include_usage: bool = False
  include_obfuscation: bool = False  # no effect


class Schema(Object):
  """`response_format.json_schema`; its name and words have no effect."""

  schema_: dict[str, Any] | bool = pydantic.Field(True, alias='schema')
  name: str | None = None
  description: str | None = None
  strict: bool | None = None


class ResponseFormat(Object):
  """What the text must be."""

  type: Literal['text', 'json_object', 'json_schema', 'regex']
  json_schema: Schema | None = None
  regex: str | None = None  # ours

  @pydantic.model_validator(mode='after')
  def _complete(self):
    for kind in ('json_schema', 'regex'):
      if (self.type == kind) != (getattr(self, kind) is not None):
        raise ValueError(f'type {kind!r} and the field {kind} go together')
    return self


class Writing(Asked):
  """How a text is continued."""

  frequency_penalty: Real | None = None
  logit_bias: dict[str, Real] | None = None
  n: Annotated[int, pydantic.Field(ge=1, le=PROMPTS)] | None = None
  presence_penalty: Real | None = None
  response_format: ResponseFormat | None = None
  seed: Annotated[int, pydantic.Field(ge=-(2**63), lt=2**63)] | None = None
  stop: OneOrMore = None
  stream: bool | None = None
  stream_options: StreamOptions | None = None
  temperature: Real | None = None
  top_p: Real | None = None
  # Ours.
  top_k: Count | None = None
  min_p: Real | None = None
  repetition_penalty: Real | None = None
  min_tokens: Count | None = None
  ignore_eos: bool | None = None
  guided_json: dict[str, Any] | str | bool | None = None
  guided_regex: str | None = None
  state: str | None = None
  return_state: Literal['id', 'bytes'] | None = None

  @property
  def reads_more(self) -> bool:
    """Whether it is more than a text: a state, or a constraint."""
    more = self.state, self.response_format, self.guided_json, self.guided_regex
    return any(x is not None for x in more)

  @pydantic.field_validator('stop')
  @classmethod
  def _check_stop(cls, value):
    if value in (None, ''):
      return ()
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or len(strings) > STOPS:
      raise ValueError(f'give a string, or a list of at most {STOPS}')
    _check_texts(strings)
    if '' in strings:
      raise ValueError('an empty string is everywhere: leave it out')
    return tuple(strings)

  @pydantic.field_validator('logit_bias')
  @classmethod
  def _check_bias(cls, value):
    for name in value or {}:
      if not (name.isascii() and name.isdigit() and len(name) < 10):
        raise ValueError('its keys are numbers of tokens, such as "17"')
    return value

  @pydantic.model_validator(mode='after')
  def _check_streaming(self):
    if self.stream_options is not None and not self.stream:
      raise http_errors.bad_request(
        'stream_options without stream=true: leave them out', 'stream_options'
      )
    return self


class Completions(Writing):
  """Continues a prompt, several prompts, or tokens."""

  prompt: Given = pydantic.Field('', validate_default=True)
  best_of: int | None = None
  echo: bool | None = None
  logprobs: Annotated[int, pydantic.Field(ge=0, le=20)] | None = None
  max_tokens: Count | None = None
  continues: bool | None = None  # ours: the prompt is within a document

  @property
  def alternatives(self) -> int | None:
    """The most likely tokens to report; None: and no log-probabilities."""
    return self.logprobs

  @pydantic.field_validator('prompt')
  @classmethod
  def _check_prompt(cls, value):
    """Returns a tuple of texts, or of tuples of ids."""
    return _texts_or_tokens(value)

  @pydantic.model_validator(mode='after')
  def _check_best_of(self):
    if self.best_of not in (None, self.n or 1):
      raise http_errors.bad_request(
        f'best_of={self.best_of} with n={self.n or 1}: the server keeps all '
        'texts that it writes: leave it out',
        'best_of',
      )
    return self


class TextPart(Object):
  """A part of a message's content."""

  type: Literal['text']
  text: str


class Message(Object):
  """A turn, which may be empty. Names have no effect."""

  role: Literal['system', 'developer', 'user', 'assistant']
  content: Content
  name: str | None = None

  @pydantic.model_validator(mode='before')
  @classmethod
  def _fill(cls, value):
    # As at OpenAI, an answer may lack its text.
    if isinstance(value, dict) and value.get('role') == 'assistant':
      if value.get('content') is None:
        return value | {'content': ''}
    return value

  @pydantic.field_validator('content')
  @classmethod
  def _check_content(cls, value):
    if isinstance(value, list):
      try:
        parts = [TextPart.model_validate(each) for each in value]
      except pydantic.ValidationError:
        raise ValueError('the model reads parts of type "text" only') from None
      value = ''.join(part.text for part in parts)
    _check_texts([value])
    return value


class Chat(Writing):
  """Answers a turn."""

  messages: Annotated[
    list[Message], pydantic.Field(min_length=1, max_length=4096)
  ]
  logprobs: bool | None = None
  top_logprobs: Annotated[int, pydantic.Field(ge=0, le=20)] | None = None
  max_tokens: Count | None = None
  max_completion_tokens: Count | None = None
  echo: ClassVar[None] = None

  @property
  def alternatives(self) -> int | None:
    """The most likely tokens to report; None: and no log-probabilities."""
    return (self.top_logprobs or 0) if self.logprobs else None

  @pydantic.field_validator('messages')
  @classmethod
  def _check_last(cls, value):
    if value[-1].role == 'assistant':
      raise ValueError('the last turn is the model’s: end with a user’s turn')
    return value

  @pydantic.model_validator(mode='after')
  def _check_logprobs(self):
    if self.top_logprobs and not self.logprobs:
      raise http_errors.bad_request(
        'top_logprobs without logprobs=true: leave it out', 'top_logprobs'
      )
    if None not in (self.max_tokens, self.max_completion_tokens):
      raise http_errors.bad_request(
        'give max_completion_tokens or max_tokens, not both', 'max_tokens'
      )
    return self


class Texts(Asked):
  """A body with texts, one or several."""

  input: OneOrMore

  @pydantic.field_validator('input')
  @classmethod
  def _check_input(cls, value):
    many = [value] if isinstance(value, str) else value
    if not isinstance(many, list) or not 0 < len(many) <= PROMPTS:
      raise ValueError(f'give a text, or a list of 1 to {PROMPTS}')
    _check_texts(many)
    return tuple(many)


class Embeddings(Asked):
  """Returns features of texts."""

  input: Given
  encoding_format: Literal['float', 'base64'] | None = None

  @pydantic.field_validator('input')
  @classmethod
  def _check_input(cls, value):
    """Returns a tuple of texts, or of tuples of ids."""
    return _texts_or_tokens(value)


class Score(Texts):
  """Says how likely texts are."""

  tokens: bool = False  # report each
  top_k: Annotated[int, pydantic.Field(ge=0, le=20)] = 0


class Classify(Texts):
  """Returns the classes of texts, each with its probability."""


class NewState(Asked):
  """Reads a text and keeps the state after it."""

  prompt: str | None = None
  messages: list[Message] | None = None
  completion: str | None = None  # the id of an answer
  choice: Annotated[int, pydantic.Field(ge=0, le=PROMPTS)] = 0
  state: str | None = None  # which the text continues
  continues: bool | None = None
  form: Literal['id', 'bytes'] = 'id'

  @pydantic.field_validator('prompt')
  @classmethod
  def _check_prompt(cls, value):
    _check_texts([] if value is None else [value])
    return value

  @pydantic.model_validator(mode='after')
  def _check_one(self):
    given = [
      name
      for name in ('prompt', 'messages', 'completion')
      if getattr(self, name) is not None
    ]
    if len(given) > 1 or not given and self.state is None:
      raise http_errors.bad_request(
        'give one of prompt, messages, completion', given[1] if given else None
      )
    if self.completion is not None and self.state is not None:
      raise http_errors.bad_request(
        'a completion has its own beginning: leave out state', 'state'
      )
    return self


class Reload(Object):
  """Serves another checkpoint of the run."""

  checkpoint: int | str = 'best'


def parse(form: type[Form], body: bytes) -> Form:
  """Returns the values of a body.

  Raises:
    ApiError: it isn't JSON, or a field is unknown or wrong; names the field.
  """
  try:
    given = files.from_json(body)
  except ValueError as error:  # UnicodeDecodeError too
    raise http_errors.bad_request(
      f'the body is not JSON: {str(error)[:200]}', None, 'invalid_json'
    ) from None
  if not isinstance(given, dict):
    raise http_errors.bad_request(
      'the body is not a JSON object: give {"field": value}'
    )
  for name, neutral in NEUTRAL.items():
    if name in given and given[name] not in (None, [], *neutral):
      raise http_errors.bad_request(
        f'{name}: this server cannot honour it: leave it out',
        name,
        'unsupported_parameter',
      )
  known = {
    name: value
    for name, value in given.items()
    if name not in NO_EFFECT and name not in NEUTRAL
  }
  try:
    return form.model_validate(known)
  except pydantic.ValidationError as error:
    raise http_errors.of_fields(error) from None


def _texts_or_tokens(value):
  """Returns a tuple of texts, or of tuples of ids; raises ValueError."""
  many = [value] if isinstance(value, str) else value
  if not isinstance(many, list):
    raise ValueError('give a text, a list of them, or tokens')
  if many and all(_is_id(each) for each in many):
    many = [many]
  if not 0 < len(many) <= PROMPTS:
    raise ValueError(f'give 1 to {PROMPTS} texts')
  if all(isinstance(each, list) for each in many):
    for each in many:
      if not each or not all(_is_id(token) for token in each):
        raise ValueError('a list of tokens has 1 or more whole numbers')
      if not 0 <= min(each) <= max(each) <= LARGEST:
        raise ValueError('a token is outside the vocabulary')
    return tuple(tuple(each) for each in many)
  _check_texts(many)
  return tuple(many)


def _is_id(value):
  return isinstance(value, int) and not isinstance(value, bool)


def _check_texts(values):
  """Raises ValueError unless all are texts that UTF-8 can hold."""
  for value in values:
    if not isinstance(value, str):
      raise ValueError('give a text')
    try:
      value.encode()
    except UnicodeEncodeError:
      raise ValueError('it has an unpaired surrogate: fix it') from None
