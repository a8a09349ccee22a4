"""The description of the API at /openapi.json, made of the forms themselves.

Its schemas are those by which bodies are checked (schemas.py), and its words
their docstrings, so that it can't say anything else. It describes requests;
docs/serving.md has the answers.
"""

from typing import Any

from rnn_jax import version
from rnn_jax.serving.http import schemas

FORMS: dict[str, type[schemas.Object]] = {
  '/v1/completions': schemas.Completions,
  '/v1/chat/completions': schemas.Chat,
  '/v1/embeddings': schemas.Embeddings,
  '/v1/score': schemas.Score,
  '/v1/classify': schemas.Classify,
  '/v1/states': schemas.NewState,
  '/admin/reload': schemas.Reload,
}
PLACE = '#/components/schemas/{model}'


def describe(name: str) -> dict[str, Any]:
  """Returns the document for a server whose model has this name."""
  parts: dict[str, Any] = {}
  paths = {}
  for path, form in FORMS.items():
    schema = form.model_json_schema(ref_template=PLACE)
    parts |= schema.pop('$defs', {})
    parts[form.__name__] = schema
    content = {'schema': {'$ref': PLACE.format(model=form.__name__)}}
    paths[path] = {
      'post': {
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
    }
  return {
    'openapi': '3.1.0',
    'info': {'title': name, 'version': version.__version__},
    'paths': paths,
    'components': {'schemas': parts},
  }
