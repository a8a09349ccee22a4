"""Replies written for a split, and their scores against the given ones.

A reply is the likeliest token by token, task.least_reply_tokens to
task.reply_tokens of them: small models end soon, which BLEU takes amiss.
With task.turns 'all' each turn but the first is a reply, behind the turns as
they were; with 'first' the second turn alone. BLEU is sacrebleu's (Post, "A
Call for Clarity in Reporting BLEU Scores", 2018), as a share of 1; ROUGE-1, -2
and -L are mean F-measures of the rouge-score package (Lin, "ROUGE", 2004);
BERTScore (Zhang et al., 2020) needs a model on disk and `pip install
rnn_jax[bertscore]`. 'valid' is the share of replies with any text.
"""

import os

import numpy as np
import sacrebleu
from rouge_score import rouge_scorer

from rnn_jax import errors
from rnn_jax.evaluation import intervals
from rnn_jax.inference import generate
from rnn_jax.inference import sampling

ROUGE = ('rouge1', 'rouge2', 'rougeL')


def predict(run, split, limit):
  """Returns a dict for each reply of the first `limit` dialogues (0: all).

  Keys: name, turn (its number in the dialogue, from 0), history, reference,
  predicted, reason (why it ended).
  """
  documents = run.corpus.documents[split]
  names = documents.names
  maker = run.corpus.examples(run.config.data, split)
  tokenizer = run.corpus.tokenizer
  asked, rows = [], []
  for n in range(min(len(documents), limit or len(documents))):
    turns = maker.turns(n)
    ids = np.array([tokenizer.boundary])
    history = []
    for turn, reply in enumerate(turns[1:], 1):
      ids = np.concatenate([ids, turns[turn - 1]])
      history.append(_text(tokenizer, turns[turn - 1]))
      asked.append(ids)
      rows.append(
        {
          'name': names[n],
          'turn': turn,
          'history': [*history],
          'reference': _text(tokenizer, reply),
        }
      )
  written = _write(run, asked)
  return [row | more for row, more in zip(rows, written, strict=True)]


def scores(predictions):
  """Returns the scores of predictions, with 'intervals' of 95 %."""
  written = [row['predicted'] for row in predictions]
  references = [row['reference'] for row in predictions]
  # Data sets of dialogues come with spaces around their full stops: `force`
  # says that this is known.
  bleu = sacrebleu.metrics.BLEU(force=True)
  scorer = rouge_scorer.RougeScorer(ROUGE, use_stemmer=True)
  each = [scorer.score(*pair) for pair in zip(references, written, strict=True)]
  found = {
    name: np.array([score[name].fmeasure for score in each]) for name in ROUGE
  }
  found['valid'] = np.array([bool(text.strip()) for text in written], float)
  edges = {
    'bleu': _bleu_interval(written, references),
    **{n: intervals.percentile(np.mean, x) for n, x in found.items()},
  }
  return {
    'bleu': bleu.corpus_score(written, [references]).score / 100,
    **{name: float(np.mean(x)) for name, x in found.items()},
    'words': float(np.mean([len(text.split()) for text in written])),
    'intervals': edges,
  }


def bert_score(predictions, model):
  """Returns {'bertscore_f1': ...} by a model in a folder, or in the cache.

  It reads the layer that the package names for a model, else the last one.

  Raises:
    InputError: the package or the model is missing.
  """
  try:
    import bert_score
    import transformers
  except ImportError:
    raise errors.InputError(
      f'--bertscore={model!r}: the package bert-score is missing: pip install '
      "'rnn_jax[bertscore]'"
    ) from None
  os.environ['HF_HUB_OFFLINE'] = '1'  # nothing is fetched
  try:
    layers = bert_score.utils.model2layers.get(model)
    if layers is None:
      config = transformers.AutoConfig.from_pretrained(model)
      layers = config.num_hidden_layers
    _, _, f1 = bert_score.score(
      [row['predicted'] for row in predictions],
      [row['reference'] for row in predictions],
      model_type=model,
      num_layers=layers,
      verbose=False,
    )
  except OSError as error:
    raise errors.InputError(
      f'--bertscore={model!r}: {str(error).splitlines()[0]}: name a folder '
      'with a model, or one of the local cache'
    ) from None
  return {'bertscore_f1': float(f1.mean())}


def _bleu_interval(written, references):
  """The interval of BLEU, which is no mean but made of sums of counts."""
  # Counts are those of the corpus; `effective_order` spares a remark on each.
  bleu = sacrebleu.metrics.BLEU(effective_order=True)
  each = [
    bleu.sentence_score(text, [reference])
    for text, reference in zip(written, references, strict=True)
  ]
  counts = np.array(
    [(*one.counts, *one.totals, one.sys_len, one.ref_len) for one in each]
  )

  def score(drawn):
    *sums, written, given = counts[drawn.astype(int)].sum(0).tolist()
    correct, total = sums[: len(sums) // 2], sums[len(sums) // 2 :]
    found = bleu.compute_bleu(
      correct, total, written, given, bleu.smooth_method
    )
    return found.score / 100

  return intervals.percentile(score, np.arange(len(counts)))


def _text(tokenizer, turn):
  return tokenizer.decode(turn).strip()


def _write(run, asked):
  """Yields what the model writes behind each history."""
  options = generate.Options(
    max_new_tokens=run.config.task.reply_tokens,
    min_new_tokens=run.config.task.least_reply_tokens,
    sampling=sampling.Sampling(0.0),
  )
  generator = generate.Generator(
    run.steps.task.model, run.params, run.corpus.tokenizer
  )
  # Histories of like length share a batch, which pads them to the longest.
  order = sorted(range(len(asked)), key=lambda n: len(asked[n]))
  completions = generator.generate([asked[n] for n in order], options)
  found = dict(zip(order, completions.completions, strict=True))
  for n in range(len(asked)):
    yield {'predicted': found[n].text.strip(), 'reason': found[n].reason}
