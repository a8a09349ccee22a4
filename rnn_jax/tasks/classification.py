"""Classification: the class of a text; all sums are weighted.

With task.answer='pooled' a head computes the class from the pooled states, and

    objective = - log p(class | text) - text_weight sum_t log p(token_t | <t)

The second sum is the language model's (Dai and Le, "Semi-supervised Sequence
Learning", 2015, in one stage rather than two). The target of a text's last step
is V + class. With 'word' the language model writes the class.

With task.class_weights a class's log p is multiplied by its weight, and the
mean is over the weights: config/class_weights.py.

With task.evidence = w the logits include the sum of the tokens' evidence, a
trained table VxC that is initialized by naive Bayes on the training texts (Wang
and Manning, "Baselines and Bigrams", 2012):

    evidence(token)_c = w (log p(token | c) - mean over c' of log p(token | c'))

With task.svm a linear SVM (models/text_svm.py) is fitted on the training
texts first. Training leaves it as it is, and the objective is the network's by
itself; the other sums are of the mean of both probabilities, of which the
SVM's counts task.svm_share.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.config import class_weights
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import classification as examples
from rnn_jax.models import blocks
from rnn_jax.models import classifier
from rnn_jax.models import experts
from rnn_jax.models import language_model
from rnn_jax.models import text_svm
from rnn_jax.ops import cross_entropy
from rnn_jax.tasks import base
from rnn_jax.tasks import language_modeling

Sums = base.Sums
PyTree = base.PyTree
# Options of 'pooled' only, with their defaults.
POOLED = "task.answer='pooled'"
UNSHARDED = 'mesh.sequence!=1', 'mesh.pipe!=1'


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # 'pooled': a head computes the class; 'word': the model writes it.
  answer: str = config_lib.option('pooled', choices=('pooled', 'word'))
  # Of a text's states; 'concat': all of them.
  pooling: str = config_lib.option(
    'mean', choices='ops.pooling:KINDS', needs=POOLED
  )
  # Initial weight of naive Bayes; 0: no evidence.
  evidence: float = config_lib.option(0.0, minimum=0, needs=POOLED)
  # Of the loss of a linear SVM that has a part of the vote; 0: none.
  svm: float = config_lib.option(
    0.0, minimum=0, needs=POOLED, excludes=UNSHARDED
  )
  # Buckets of its pairs of tokens.
  pairs: int = config_lib.option(
    2**16, minimum=1, maximum=2**24, needs='task.svm'
  )
  # Its pairs of the first words, up to that many, with each later token.
  openings: int = config_lib.option(0, minimum=0, maximum=8, needs='task.svm')
  # Whether only it tells capital letters from small ones.
  case: bool = config_lib.option(False, needs='task.svm')
  # Its part of the vote.
  svm_share: float = config_lib.option(0.5, below=1, needs='task.svm')
  # Rows of the table of character n-grams' embeddings; 0: none.
  ngrams: int = config_lib.option(
    0, minimum=0, maximum=2**24, needs=POOLED, excludes=UNSHARDED
  )
  # Weight of the text's loss.
  text_weight: float = config_lib.option(0.0, minimum=0, needs=POOLED)
  # 'none', 'balanced', 'sqrt_balanced' or a number for each class.
  class_weights: str | tuple[float, ...] = config_lib.option(
    class_weights.NONE, needs=POOLED
  )

  classifies: ClassVar[bool] = True
  answers: ClassVar[bool] = True
  predictor: ClassVar[str] = 'rnn_jax.evaluation.classification'

  @property
  def writes_text(self) -> bool:  # type: ignore[override]  # by `answer`
    """Whether the model predicts tokens."""
    return self.answer == 'word'

  @property
  def loss_per(self) -> str:  # type: ignore[override]  # by `answer`
    """What the loss is a mean over."""
    return 'token' if self.answer == 'word' else 'text'

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    class_weights.check(self.class_weights, config.data.classes)

  def renewed(self, other: config_lib.Task) -> dict[str, str]:
    """Returns the SVM's table, if another run's SVM has other features."""
    theirs = getattr(other, 'openings', 0), getattr(other, 'case', False)
    if not self.svm or (self.openings, self.case) == theirs:
      return {}
    return {'svm/table': f'its task has {theirs[0]} openings, case={theirs[1]}'}


make_examples = examples.Labelled  # workers import that file, and no jax
check_documents = examples.check


def make(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> 'Task | language_modeling.Task':
  """Returns the task of a Config."""
  if config.task.answer == 'word':
    return language_modeling.Task(config, tokenizer)
  return Task(config, tokenizer)


class Task(base.Task):
  """The classifier of a config and tokenizer, its loss and metrics."""

  headline = 'accuracy', 'accuracy'
  unit = 'tokens'

  def __init__(
    self, config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
    self.model = classifier.from_config(config, tokenizer)
    self._config = config
    self._vocabulary = tokenizer.size
    self._text_weight = config.task.text_weight
    self._smoothing = config.train.label_smoothing
    self._class_weights = class_weights.numbers(config.task.class_weights)
    self._text = cross_entropy.Options(
      0.0, config.train.z_loss, self.model.body.policy.operands
    )
    self._steps = config.remat.segment
    self._drops = blocks.drops(config)

  def init_parameters(self, key: jax.Array) -> PyTree:
    """Returns new parameters, float32."""

    def read(model, state, tokens):
      state, x, logits = model.features(state, tokens)
      return logits, model.text_head(x) if self._text_weight else None

    tokens = jnp.zeros((1, 2), jnp.int32)
    state = self.init_state(1)
    params = self.model.init(key, state, tokens, method=read)['params']
    return blocks.scaled(params, key, self._config.model)

  def init_from_data(self, params: PyTree, corpus: corpus_lib.Corpus) -> PyTree:
    """Returns initial parameters for a corpus: its evidence, its SVM."""
    task, data = self._config.task, self._config.data
    if task.evidence:
      weighted = task.evidence * evidence(corpus, data)
      params = params | {'table': {'embedding': weighted}}
    if task.svm:
      texts, labels_N = _training_texts(corpus, data)
      sizes = self.model.linear
      table = text_svm.fit(
        texts, labels_N, sizes, task.svm, self._class_weights
      )
      params = params | {'svm': {'table': table}}
    return params

  def _segment(self, params, key, state, batch, n):
    """Returns (state, sums) of segment number `n` of the rows."""
    rngs = self._rngs(key, n)
    (state, x_BxLxD, each), routes = experts.apply(
      self.model,
      params,
      state,
      batch.tokens_BxL,
      batch.starts_BxL,
      rngs=rngs,
      method='features',
    )
    classes_BxL = batch.targets_BxL - self._vocabulary
    weights_BxL = batch.weights_BxL * (classes_BxL >= 0)
    rest = classes_BxL, weights_BxL, self._smoothing, self._class_weights
    sums = class_sums(self.model.vote(each), *rest)
    if len(each) > 1:  # the SVM's part has no gradient
      sums['objective'] = class_sums(each[0], *rest)['objective']
    if self._text_weight:
      x_BxLxD, head = self.model.apply(
        {'params': params}, x_BxLxD, rngs=rngs, method='text_head'
      )
      predicted = (
        jnp.where(classes_BxL >= 0, 0, batch.targets_BxL),
        batch.weights_BxL * (classes_BxL < 0),
      )
      text = language_model.token_sums(
        self.model.body, x_BxLxD, head, predicted, self._text
      )
      sums['objective'] += self._text_weight * text.loss
    sums = experts.with_load(
      sums,
      routes,
      weights_BxL,
      batch.weights_BxL,
      self._config.model.experts,
    )
    return state, sums

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums; the loss in nats per text."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'accuracy': sums['hits'] / sums['weight'],
      **experts.metrics(sums),
    }


def evidence(corpus: corpus_lib.Corpus, data: config_lib.Data) -> np.ndarray:
  """Returns the evidence of tokens for classes, VxC, float32.

  It is log p(token | class) minus the mean over classes. p is the fraction of
  training texts with the token, with 1 added to each count.
  """
  texts, labels_N = _training_texts(corpus, data)
  counts_VxC = np.ones((corpus.tokenizer.size, len(data.classes)))
  for ids, label in zip(texts, labels_N, strict=True):
    counts_VxC[np.unique(ids), label] += 1
  logp_VxC = np.log(counts_VxC / counts_VxC.sum(0, keepdims=True))
  logp_VxC -= logp_VxC.mean(1, keepdims=True)
  return logp_VxC.astype(np.float32)


def _training_texts(corpus, data):
  """Returns (an iterator over the ids of texts, the class of each)."""
  documents, maker = corpus.documents['train'], corpus.examples(data, 'train')
  labels = documents.labels
  assert labels is not None  # see `check_documents`
  questions = map(maker.question, range(len(documents)))
  return (np.maximum(ids, ~ids) for ids in questions), np.asarray(labels)


def class_sums(
  logits_BxLxC: jax.Array,
  classes_BxL: jax.Array,
  weights_BxL: jax.Array,
  smoothing: float,
  class_weights: tuple[float, ...] = (),
) -> Sums:
  """Returns weighted sums over steps with a class, a dict of scalars.

  Only the objective has the weights of classes, and then 'objective_weight' is
  their sum: what it is a mean over.
  """
  logp_BxLxC = jax.nn.log_softmax(logits_BxLxC.astype(jnp.float32))
  C = logp_BxLxC.shape[-1]
  # Steps of weight 0 may have any class.
  onehot_BxLxC = jax.nn.one_hot(classes_BxL, C)
  nats_BxL = -jnp.sum(onehot_BxLxC * logp_BxLxC, -1)
  even_BxL = -jnp.mean(logp_BxLxC, -1)
  hits_BxL = jnp.argmax(logp_BxLxC, -1) == classes_BxL
  mixed_BxL = (1 - smoothing) * nats_BxL + smoothing * even_BxL
  sums = {
    'objective': jnp.sum(weights_BxL * mixed_BxL),
    'loss': jnp.sum(weights_BxL * nats_BxL),
    'weight': jnp.sum(weights_BxL),
    'hits': jnp.sum(weights_BxL * hits_BxL),
  }
  if class_weights:
    weights_C = jnp.array(class_weights, jnp.float32)
    own_BxL = weights_BxL * jnp.sum(onehot_BxLxC * weights_C[None, None], -1)
    sums['objective'] = jnp.sum(own_BxL * mixed_BxL)
    sums['objective_weight'] = jnp.sum(own_BxL)
  return sums
