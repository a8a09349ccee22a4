"""Routes that compute: /v1/embeddings, /v1/score, /v1/classify."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
from starlette import responses

from rnn_jax import errors
from rnn_jax.inference import model as model_lib
from rnn_jax.serving.http import base
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import schemas

Request = base.Request
Response = responses.Response


class Scoring(base.Routes):
  """The routes."""

  async def embeddings(self, request: Request) -> Response:
    form = schemas.parse(schemas.Embeddings, await request.body())
    if self.service.forecasts:
      raise self.service.wrong_endpoint()
    encode = np.ndarray.tolist
    if form.encoding_format == 'base64':
      encode = _base64

    def compute(model, texts):
      features = np.asarray(model.embed(texts), np.float32)
      return [
        {'object': 'embedding', 'index': n, 'embedding': encode(row)}
        for n, row in enumerate(features)
      ]

    texts = [self._text(each) for each in form.input]
    return await self._answer(request, form, texts, compute)

  async def score(self, request: Request) -> Response:
    form = schemas.parse(schemas.Score, await request.body())
    if not self.service.scores:
      raise self.service.wrong_endpoint()

    def compute(model, texts):
      scores = model.score(texts, top_k=form.top_k)
      return [_scored(n, x, form.tokens) for n, x in enumerate(scores)]

    return await self._answer(request, form, [*form.input], compute)

  async def classify(self, request: Request) -> Response:
    form = schemas.parse(schemas.Classify, await request.body())
    if not self.service.classifies:
      raise self.service.wrong_endpoint()
    return await self._answer(request, form, [*form.input], _classified)

  def _text(self, given):
    """Returns a text, or that of tokens, if they are its tokens."""
    if isinstance(given, str):
      return given
    tokenizer = self.service.model.bundle.tokenizer
    if max(given) < tokenizer.size:
      text = tokenizer.decode(given)
      if tokenizer.encode_document(text).tolist() == [*given]:
        return text
    raise http_errors.bad_request(
      "input: tokens that aren't a text of this model: give the text", 'input'
    )

  async def _answer(
    self,
    request: Request,
    form: schemas.Asked,
    texts: list[str],
    compute: Callable[[model_lib.Model, list[str]], list[Any]],
  ) -> Response:
    """Answers with a row for each text."""
    self.service.check_whole(form.model)
    count = await self._check_texts(texts)
    try:
      rows = await self.service.compute(lambda model: compute(model, texts))
    except errors.InputError as error:
      raise http_errors.bad_request(str(error), 'input') from None
    request.state.entry['prompt_tokens'] = count
    return base.json_response(
      {
        'object': 'list',
        'data': rows,
        'model': self.service.options.name,
        'usage': {'prompt_tokens': count, 'total_tokens': count},
      }
    )

  async def _check_texts(self, texts):
    """Returns how many tokens texts have; refuses more than allowed."""
    tokenizer = self.service.model.bundle.tokenizer
    most = self.service.options.limits.prompt_tokens
    counts = await base.thread(
      lambda: [len(tokenizer.encode_document(text)) for text in texts]
    )
    for n, count in enumerate(counts):
      if count > most:
        raise http_errors.bad_request(
          f'text {n} has {count:,} tokens, and {most:,} are allowed: give '
          'parts of it',
          f'input.{n}',
          'context_length_exceeded',
        )
    return sum(counts)


def _base64(row):
  return base64.b64encode(row.astype('<f4').tobytes()).decode()


def _classified(model, texts):
  return [
    {
      'object': 'class',
      'index': n,
      'label': each.label,
      'probabilities': each.probabilities,
      'written': each.written,
    }
    for n, each in enumerate(model.predict(texts))
  ]


def _scored(number, score, with_tokens):
  described = {
    'object': 'score',
    'index': number,
    'loss': score.loss,
    'perplexity': score.perplexity,
    'bits_per_byte': score.bits_per_byte,
    'logprob': score.logprob,
    'tokens': score.token_count,
    'bytes': score.byte_count,
  }
  if with_tokens:
    described['each'] = [
      {
        'id': token.id,
        'text': token.text,
        'start': token.start,
        'stop': token.stop,
        'logprob': token.logprob,
        'rank': token.rank,
        'entropy': token.entropy,
        'counted': token.counted,
        'top': [
          {'id': x.id, 'text': x.text, 'logprob': x.logprob} for x in token.top
        ],
      }
      for token in score.tokens()
    ]
  return described
