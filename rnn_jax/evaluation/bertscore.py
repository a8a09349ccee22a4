"""BERTScore of replies (Zhang et al., "BERTScore", 2020), by a model on disk.

A reply's words are matched with those of the given one by the cosine of their
vectors in a pretrained model; the score is the F-measure of both directions,
0 of an empty reply, and a mean over replies. The package bert-score names the
layer for models that it knows by their name; else it is the last one. Nothing
is fetched: a model is a folder, or lies in the local cache of its hub.
"""

import collections
import dataclasses
import os
from typing import Any

import numpy as np

from rnn_jax import errors

BATCH = 64  # texts at a time
LENGTH = 512  # tokens of a text, where neither tokenizer nor model has a limit
NO_LIMIT = 10**9  # what a tokenizer without a limit calls one is far above


@dataclasses.dataclass(frozen=True, eq=False)
class Scorer:
  """A model that has scored a text already: package and files are there."""

  model: Any
  tokenizer: Any

  def f1(self, predictions):
    """Returns the F-measure of each prediction, 0 of one without text."""
    import torch
    from bert_score import utils

    pairs = [(row['predicted'], row['reference']) for row in predictions]
    # The package can't encode an empty text with transformers 5.
    told = [n for n, pair in enumerate(pairs) if all(map(str.strip, pair))]
    found = np.zeros(len(pairs))
    if not told:
      return found
    weights = collections.defaultdict(lambda: 1.0)
    weights[self.tokenizer.sep_token_id] = 0
    weights[self.tokenizer.cls_token_id] = 0
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    each_Nx3 = utils.bert_cos_score_idf(
      self.model.to(device),
      [pairs[n][1] for n in told],
      [pairs[n][0] for n in told],
      self.tokenizer,
      weights,
      batch_size=BATCH,
      device=device,
    )
    found[told] = each_Nx3[:, 2].cpu().numpy()
    return found


def open_scorer(name):
  """Returns the Scorer of a model, a folder's or one in the local cache.

  Raises:
    InputError: the package or the model is missing, or the model can't score.
  """
  # The hub's client reads it once, when it is imported.
  os.environ['HF_HUB_OFFLINE'] = '1'
  try:
    import bert_score  # noqa: F401
  except ImportError as error:
    raise errors.InputError(
      f'--bertscore={name!r}: {error}: the package bert-score is missing or '
      "unfit: pip install 'rnn_jax[bertscore]'"
    ) from None
  try:
    scorer = _load(name)
  except errors.InputError:
    raise
  except (OSError, ValueError) as error:
    raise errors.InputError(
      f'--bertscore={name!r}: {str(error).splitlines()[0]}: name a folder '
      'with a model and its tokenizer, or one of the local cache'
    ) from None
  scorer.f1([{'predicted': 'a', 'reference': 'a'}])
  return scorer


def _load(name):
  import huggingface_hub
  import transformers
  from bert_score import utils

  # Only of a folder is it certain that nothing else is asked for.
  folder = os.path.abspath(name)
  if not os.path.isdir(name):
    folder = huggingface_hub.snapshot_download(name, local_files_only=True)
  config = transformers.AutoConfig.from_pretrained(folder)
  _check_name(name, folder, config)
  tokenizer = utils.get_tokenizer(folder)
  _check_tokenizer(name, tokenizer)
  _limit(tokenizer, config)
  layers = utils.model2layers.get(name, config.num_hidden_layers)
  return Scorer(utils.get_model(folder, layers), tokenizer)


def _check_name(name, folder, config):
  # By these letters the package tells which class reads the weights.
  if 't5' in folder and 't5' not in config.model_type:
    raise errors.InputError(
      f"--bertscore={name!r}: a path with 't5' in it is taken for a T5, and "
      f'this is a {config.model_type!r}: rename the folder'
    )


def _check_tokenizer(name, tokenizer):
  if tokenizer.pad_token_id is None:
    raise errors.InputError(
      f'--bertscore={name!r}: its tokenizer has no padding: name an encoder, '
      'such as a BERT or RoBERTa'
    )


def _limit(tokenizer, config):
  """Gives a tokenizer without a limit the model's."""
  if tokenizer.model_max_length < NO_LIMIT:
    return
  positions = getattr(config, 'max_position_embeddings', None) or LENGTH
  # RoBERTa counts positions from behind its padding's.
  tokenizer.model_max_length = positions - tokenizer.pad_token_id - 1
