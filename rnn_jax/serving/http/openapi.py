"""The description of the API at /openapi.json, made of the forms themselves.

Its schemas are those by which bodies are checked (schemas.py), and its words
their docstrings, so that it can't say anything else. It describes requests;
docs/serving.md has the answers.
"""

from typing import Any

from rnn_jax import version
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import series_schemas

Form = type[schemas.Object]
STREAMS = '/v1/streams'
STREAM = '/v1/streams/{id}'
FORMS: tuple[tuple[str, str, Form], ...] = (  # (path, method, what it reads)
  ('/v1/completions', 'post', schemas.Completions),
  ('/v1/chat/completions', 'post', schemas.Chat),
  ('/v1/embeddings', 'post', schemas.Embeddings),
  ('/v1/score', 'post', schemas.Score),
  ('/v1/classify', 'post', schemas.Classify),
  ('/v1/states', 'post', schemas.NewState),
  ('/v1/forecast', 'post', series_schemas.Forecast),
  (STREAMS, 'post', series_schemas.NextReadings),
  (STREAM, 'put', series_schemas.NewStream),
  (STREAM, 'post', series_schemas.Readings),
  ('/admin/reload', 'post', schemas.Reload),
)
PLACE = '#/components/schemas/{model}'


def describe(name: str) -> dict[str, Any]:
  """Returns the document for a server whose model has this name."""
  parts: dict[str, Any] = {}
  paths: dict[str, dict[str, Any]] = {}
  for path, method, form in FORMS:
    schema = form.model_json_schema(ref_template=PLACE)
    parts |= schema.pop('$defs', {})
    parts[form.__name__] = schema
    content = {'schema': {'$ref': PLACE.format(model=form.__name__)}}
    paths.setdefault(path, {})[method] = {
      'summary': schema['description'],
      'requestBody': {
        'required': True,
        'content': {'application/json': content},
      },
      'responses': {
        '200': {'description': 'An object of JSON, or a stream of events.'},
        '4XX': {'description': 'An error; `param` names the field.'},
      },
    }
  paths[STREAM]['parameters'] = [
    {
      'name': 'id',
      'in': 'path',
      'required': True,
      'schema': {'type': 'string', 'pattern': series_schemas.ID.pattern},
    }
  ]
  return {
    'openapi': '3.1.0',
    'info': {'title': name, 'version': version.__version__},
    'paths': paths,
    'components': {'schemas': parts},
  }
