"""Routes that compute: /v1/embeddings, /v1/score, /v1/classify."""

import base64
import functools
from collections.abc import Callable
from typing import Any
from typing import TypeVar

import numpy as np
from starlette import responses

from rnn_jax import errors
from rnn_jax.serving.http import base
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import schemas

T = TypeVar('T')
Request = base.Request
Response = responses.Response


class Scoring(base.Routes):
  """The routes."""

  async def embeddings(self, request: Request) -> Response:
    form = await self._form(schemas.Embeddings, request)
    texts = [self._text(each) for each in form.input]
    count = await self._check_texts(texts)
    features = await self._compute(lambda model: model.embed(texts))
    as_text = form.encoding_format == 'base64'
    data = [
      {
        'object': 'embedding',
        'index': n,
        'embedding': base64.b64encode(row.astype('<f4').tobytes()).decode()
        if as_text
        else row.tolist(),
      }
      for n, row in enumerate(np.asarray(features, np.float32))
    ]
    return self._list(request, data, count)

  async def score(self, request: Request) -> Response:
    form = await self._form(schemas.Score, request)
    if not self.service.scores:
      raise http_errors.bad_request(
        'this model predicts classes: use /v1/classify', code='wrong_endpoint'
      )
    count = await self._check_texts(form.input)

    def compute(model):
      return [
        _scored(n, score, form.tokens)
        for n, score in enumerate(model.score([*form.input], top_k=form.top_k))
      ]

    return self._list(request, await self._compute(compute), count)

  async def classify(self, request: Request) -> Response:
    form = await self._form(schemas.Classify, request)
    if not self.service.classifies:
      raise http_errors.bad_request(
        'this model predicts no classes: use /v1/completions',
        code='wrong_endpoint',
      )
    count = await self._check_texts(form.input)
    predictions = await self._compute(
      lambda model: model.predict([*form.input])
    )
    data = [
      {
        'object': 'class',
        'index': n,
        'label': each.label,
        'probabilities': each.probabilities,
        'written': each.written,
      }
      for n, each in enumerate(predictions)
    ]
    return self._list(request, data, count)

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

  async def _form(self, form, request):
    given = await self.form(form, request)
    self.service.check_whole(given.model)
    return given

  def _list(self, request, data, count):
    """Answers with a row for each text; they have `count` tokens."""
    request.state.entry['prompt_tokens'] = count
    return base.json_response(
      {
        'object': 'list',
        'data': data,
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

  async def _compute(self, function: Callable[[Any], T]) -> T:
    try:
      return await self.compute_in_thread(
        functools.partial(self.service.compute, function)
      )
    except errors.InputError as error:
      raise http_errors.bad_request(str(error), 'input') from None


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
