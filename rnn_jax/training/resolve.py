"""What a run's config leaves open, in the order in which it is filled in.

    config -> columns and classes -> rows of a batch -> steps -> warm-up
           -> weights of classes -> remat

All of it comes before the run's folder is opened: what is refused here leaves
no folder, and config.json has what was filled in. See config/resolve.py.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.config import class_weights
from rnn_jax.config import resolve as resolve_lib
from rnn_jax.data import columns
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.parallel import hosts
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import epochs
from rnn_jax.training.memory import batch_size
from rnn_jax.training.memory import lower_bound
from rnn_jax.training.memory import remat

Resolver = resolve_lib.Resolver
OpenCorpus = Callable[[config_lib.Config], corpus_lib.Corpus]


@dataclasses.dataclass(frozen=True, eq=False)
class Resolved:
  """A config with nothing left open, and the corpus that it was read from."""

  config: config_lib.Config
  corpus: corpus_lib.Corpus


def resolve(
  config: config_lib.Config,
  open_corpus: OpenCorpus = lambda config: corpus_lib.Corpus.open(config, None),
  before: Mapping[str, Any] | None = None,
) -> Resolved:
  """Fills in a config, and opens its corpus.

  Args:
    config: of `config.parse`.
    open_corpus: opens it, once the columns are known; by default a new run's.
    before: config.json of the run that resumes.

  Raises:
    InputError: bad data, or values that what was filled in contradicts.
  """
  opened: list[corpus_lib.Corpus] = []

  def corpus(config):
    if not opened:
      lower_bound.check(config)
      opened.append(hosts.run_on_first_then_others(lambda: open_corpus(config)))
    return opened[0]

  began = None if before is None else config_lib.parse(before)
  for resolver in RESOLVERS:
    config = resolve_lib.run(config, (resolver,), corpus, began)
    config_lib.check(config)
  return Resolved(config, corpus(config))


def of_data(config: config_lib.Config) -> config_lib.Config:
  """Fills in the columns and the classes; opens no corpus.

  Raises:
    InputError: as `resolve`.
  """
  config = resolve_lib.run(config, (COLUMNS,))
  config_lib.check(config)
  return config


def describe(config: config_lib.Config) -> str:
  """Returns a line for each of RESOLVERS that has filled in something."""
  return resolve_lib.describe(config, RESOLVERS)


def row_multiple(config: config_lib.Config) -> int:
  """Returns what divides the rows of each batch: devices x accumulation."""
  mesh = mesh_lib.make(config.mesh)
  return mesh_lib.row_multiple(mesh, config.mesh) * config.train.accumulate


def _columns(config, corpus):
  del corpus
  return hosts.run_on_first_then_others(lambda: columns.resolve(config))


def _rows(config, corpus):
  if not config.data.memory_gib:
    return config
  tokenizer = corpus(config).tokenizer
  return batch_size.resolve(config, tokenizer, row_multiple(config))


def _steps(config, corpus):
  if not config.train.epochs:
    return config
  return epochs.resolve(config, corpus(config), row_multiple(config))


def _weights(config, corpus):
  if not class_weights.is_open(config):
    return config
  labels_N = corpus(config).documents['train'].labels
  return class_weights.resolve(config, labels_N)


def _remat(config, corpus):
  if config.remat.every != 'auto':
    return config
  opened = corpus(config)
  shapes = pipeline.batch_shapes(opened, config, row_multiple(config))
  return remat.resolve(config, opened.tokenizer, shapes)


COLUMNS = Resolver(
  ('the data',),
  (
    'data.field',
    'data.label',
    'data.classes',
    'data.tokenizer',
    'data.frequency',
    'data.season',
    'data.horizon',
    'data.window',
    'data.categories',
    'data.category_sizes',
    'data.table',
    'data.channels',
    'data.labels',
    'data.length',
  ),
  _columns,
)
RESOLVERS = (
  resolve_lib.CELLS,
  COLUMNS,
  Resolver(('data.memory_gib',), ('data.tokens_per_batch',), _rows),
  Resolver(('train.epochs', 'the data'), ('train.steps',), _steps),
  resolve_lib.WARMUP,
  Resolver(('the data',), ('task.class_weights',), _weights),
  Resolver(('remat.memory_gib',), ('remat.*',), _remat),
)
