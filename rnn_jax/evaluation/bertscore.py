"""BERTScore of replies (Zhang et al., "BERTScore", 2020), by a model on disk.

A reply's words are matched with those of the reference by the cosine of their
vectors in a pretrained model. Precision is the mean over the reply's words,
recall over the reference's, F1 their harmonic mean; all are 0 for an empty
reply, and scores are means over replies. The package bert-score knows the
layer of some models by name; for others it is the last one. Nothing is
downloaded: a model is a folder, or is in the local cache of its hub.
"""

import collections
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import errors

BATCH = 64  # texts at a time
NAMES = ('bertscore_precision', 'bertscore_recall', 'bertscore_f1')
LENGTH = 512  # tokens of a text, if neither tokenizer nor model has a limit
NO_LIMIT = 10**9  # a tokenizer without a limit has a far larger number


@dataclasses.dataclass(frozen=True, eq=False)
class Scorer:
  """A model that has already scored a text: package and files are complete."""

  model: Any
  tokenizer: Any

  def scores(
    self, predictions: Sequence[dict[str, Any]]
  ) -> dict[str, np.ndarray]:
    """Returns NAMES of each prediction, 0 for one without text."""
    import torch
    from bert_score import utils

    pairs = [(row['predicted'], row['reference']) for row in predictions]
    # The package can't encode an empty text with transformers 5.
    full = [n for n, pair in enumerate(pairs) if all(map(str.strip, pair))]
    scores_Nx3 = np.zeros((len(pairs), len(NAMES)))
    if not full:
      return dict(zip(NAMES, scores_Nx3.T, strict=True))
    weights = collections.defaultdict(lambda: 1.0)
    weights[self.tokenizer.sep_token_id] = 0
    weights[self.tokenizer.cls_token_id] = 0
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    each_Nx3 = utils.bert_cos_score_idf(
      self.model.to(device),
      [pairs[n][1] for n in full],
      [pairs[n][0] for n in full],
      self.tokenizer,
      weights,
      batch_size=BATCH,
      device=device,
    )
    scores_Nx3[full] = each_Nx3.cpu().numpy()
    return dict(zip(NAMES, scores_Nx3.T, strict=True))


def open_scorer(name: str) -> Scorer:
  """Returns the Scorer of a model in a folder or in the local cache.

  Raises:
    InputError: the package or the model is missing, or the model can't score.
  """
  # The hub's client reads this once, on import.
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
      f'--bertscore={name!r}: {errors.first_line(error)}: name a folder '
      'with a model and its tokenizer, or a model in the local cache'
    ) from None
  scorer.scores([{'predicted': 'a', 'reference': 'a'}])
  return scorer


def _load(name):
  import huggingface_hub
  import transformers
  from bert_score import utils

  # Only with a folder is it certain that nothing else is requested.
  folder = os.path.abspath(name)
  if not os.path.isdir(name):
    folder = huggingface_hub.snapshot_download(name, local_files_only=True)
  config = transformers.AutoConfig.from_pretrained(folder)
  # The package looks for these letters to choose the class of the model.
  if 't5' in folder and 't5' not in config.model_type:
    errors.refuse(
      '--bertscore',
      name,
      "a path with 't5' in it is taken for a T5, and this is a "
      f'{config.model_type!r}: rename the folder',
    )
  tokenizer = utils.get_tokenizer(folder)
  if tokenizer.pad_token_id is None:
    errors.refuse(
      '--bertscore',
      name,
      'its tokenizer has no padding: name an encoder, such as BERT or RoBERTa',
    )
  _limit(tokenizer, config)
  layers = utils.model2layers.get(name, config.num_hidden_layers)
  return Scorer(utils.get_model(folder, layers), tokenizer)


def _limit(tokenizer, config):
  """Gives a tokenizer without a limit that of the model."""
  if tokenizer.model_max_length < NO_LIMIT:
    return
  positions = getattr(config, 'max_position_embeddings', None) or LENGTH
  # RoBERTa counts positions from the one after its padding's.
  tokenizer.model_max_length = positions - tokenizer.pad_token_id - 1
