"""Errors as OpenAI's clients read them.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

`param` names the field of the request that is wrong, as 'messages.0.role'.
"""

import dataclasses
import re
from typing import Any

import pydantic
from starlette import responses

from rnn_jax import errors
from rnn_jax.serving import defects
from rnn_jax.serving import records
from rnn_jax.serving import requests
from rnn_jax.serving import stream_table
from rnn_jax.serving import stream_times
from rnn_jax.system import files

BAD = 'invalid_request_error'
CUT = 499  # in the log: the client had left
SHOWN = 300  # characters of a reason that a message shows
LONGEST_SHOWN = 40  # characters of a value that a message shows
CASES = 'float', 'int', 'str'  # of unions, in pydantic's paths
# The arguments of rnn_jax by their fields, where these have other names.
FIELDS = {
  'max_new_tokens': 'max_tokens',
  'min_new_tokens': 'min_tokens',
  'prompts': 'prompt',
  'text': 'prompt',
  'turn': 'messages',
}


@dataclasses.dataclass
class ApiError(Exception):
  """An answer that isn't what was asked for.

  Attributes:
    status: of HTTP.
    message: what is wrong and what to do.
    type: the kind of error, as OpenAI names it.
    param: the field of the request, or None.
    code: a word for programs, or None.
    retry_after: seconds until another try makes sense, or None.
  """

  status: int
  message: str
  type: str = BAD
  param: str | None = None
  code: str | None = None
  retry_after: int | None = None

  def body(self) -> dict[str, Any]:
    """Returns the answer's object."""
    return {
      'error': {
        'message': self.message,
        'type': self.type,
        'param': self.param,
        'code': self.code,
      }
    }


def respond(error: ApiError) -> responses.Response:
  """Returns the answer of an error."""
  headers = {}
  if error.retry_after is not None:
    headers['Retry-After'] = str(error.retry_after)
  if error.status == 401:
    headers['WWW-Authenticate'] = 'Bearer'
  content = files.to_json(error.body())
  return responses.Response(content, error.status, headers, 'application/json')


def bad_request(
  message: str, param: str | None = None, code: str | None = None
) -> ApiError:
  """Returns the error of a request that can't be right at any time."""
  return ApiError(400, message, BAD, param, code)


def not_found(message: str, param: str) -> ApiError:
  """Returns the error of a field that names what this server doesn't have."""
  return ApiError(404, message, BAD, param, f'{param}_not_found')


def conflict(message: str, param: str, code: str) -> ApiError:
  """Returns the error of a request that what is kept contradicts, 409."""
  return ApiError(409, message, BAD, param, code)


def overloaded(message: str, seconds: int = 1) -> ApiError:
  """Returns the error of a full queue, 429."""
  return ApiError(429, message, 'rate_limit_error', None, 'overloaded', seconds)


def left() -> ApiError:
  """Returns the error of a client that has left; only the log has it."""
  return ApiError(CUT, 'the client has left')


def stopping() -> ApiError:
  """Returns the error of a server that is about to end."""
  return ApiError(
    503, 'the server is stopping', 'server_error', None, 'stopping', 5
  )


def explain(error: Exception, entry: dict[str, Any]) -> ApiError:
  """Returns an exception as an ApiError; a defect is logged.

  Args:
    error: what was raised.
    entry: of the access log; it gets the code.
  """
  failure = of(error)
  if failure is None:
    defects.log(entry['id'], error)
    failure = ApiError(
      500,
      f'a defect of the server, which has logged it as {entry["id"]}',
      'server_error',
      None,
      'defect',
    )
  if failure.code:
    entry['code'] = failure.code
  return failure


def of(error: Exception) -> ApiError | None:
  """Returns an exception as an ApiError; None: it is a defect."""
  result = None
  match error:
    case ApiError():
      result = error
    case pydantic.ValidationError():
      result = of_fields(error)
    case requests.QueueFullError():
      result = overloaded(str(error))
    case requests.ClosedError():
      result = stopping()
    case records.NotFoundError():
      result = not_found(str(error), 'state')
    case stream_table.UnknownStreamError():
      result = not_found(str(error), 'stream')
    case stream_table.OutdatedStreamError():
      result = conflict(str(error), 'stream', 'stream_outdated')
    case stream_times.ConflictError():
      result = conflict(
        str(error), _field(str(error)) or 'time', 'reading_conflict'
      )
    case records.DamagedError():
      result = ApiError(422, str(error), BAD, 'state', 'state_damaged')
    case records.QuotaError():
      result = ApiError(
        429, str(error), 'insufficient_quota', None, 'insufficient_quota'
      )
    case records.UnavailableError():
      result = ApiError(
        503, str(error), 'server_error', None, 'store_unavailable', 5
      )
    case errors.InputError():
      result = bad_request(str(error), _field(str(error)))
  return result


def of_fields(error: pydantic.ValidationError) -> ApiError:
  """Returns the first error of a request's fields, in words."""
  first = error.errors(include_url=False, include_context=False)[0]
  places = [str(part) for part in first['loc'] if _is_field(part)]
  param = '.'.join(places) or None
  message, value = first['msg'].removeprefix('Value error, '), first['input']
  name = param or 'the body'
  # Of two fields at once pydantic has the whole body, texts included.
  given = f'={_shown(value)}' if param else ''
  if first['type'] == 'extra_forbidden':
    return bad_request(
      f'{name}: this server has no such field: leave it out',
      param,
      'unknown_parameter',
    )
  if first['type'] == 'missing':
    return bad_request(f'{name} is missing: give it', param, 'missing')
  return bad_request(
    f'{name}{given}: {message[:SHOWN]}', param, 'invalid_value'
  )


def _is_field(part):
  """Whether a part of pydantic's path is of the request: not a union's case."""
  if isinstance(part, int):
    return True
  return part not in CASES and bool(re.fullmatch(r'[a-z0-9_]{1,64}', part))


def _shown(value):
  """Returns a value as a message has it: no text that could be a prompt."""
  if isinstance(value, list):
    return f'(a list of {len(value):,})'
  if isinstance(value, dict):
    return '(an object)'
  shown = ascii(value)
  if len(shown) <= LONGEST_SHOWN:
    return shown
  return f'(a {"text" if isinstance(value, str) else "number"})'


def _field(message):
  name, equals, _ = message.partition('=')
  if not equals or not re.fullmatch(r'[a-z_.]{1,40}', name):
    return None
  return FIELDS.get(name, name)
