"""Tests of model folders: a model that is read again isn't traced again."""

import pytest

from rnn_jax.runs import bundle as bundle_lib

SHAPES = {}  # of parameters, by all that they depend on


@pytest.fixture(autouse=True)
def _shapes_once(monkeypatch):
  like = bundle_lib.like

  def known(config, tokenizer):
    key = repr((config.task, config.model, config.cell, config.data.length))
    key = key, tokenizer.size
    if key not in SHAPES:
      SHAPES[key] = like(config, tokenizer)
    return SHAPES[key]

  monkeypatch.setattr(bundle_lib, 'like', known)
