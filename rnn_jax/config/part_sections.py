"""The sections that name a part: what all parts of a kind share.

They have the options of all tasks, sources and layouts, optimizers and
schedules; the part's file adds its own, see `parts`.
"""

import dataclasses
import typing
from typing import ClassVar

from rnn_jax.config import parts
from rnn_jax.config.values import option


class Part:
  """Base of the sections that name a part, whose file adds options.

  Attributes:
    excludes: conditions with which the part isn't available: `conditions`.
  """

  excludes: ClassVar[tuple[str, ...]] = ()

  if typing.TYPE_CHECKING:

    def __getattr__(self, name: str) -> typing.Any: ...

  def check(self, config: typing.Any) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """


@dataclasses.dataclass(frozen=True)
class Task(Part):
  """The task: the options of all tasks, and what each task declares."""

  name: str = 'language_modeling'  # a file of rnn_jax/tasks, or your module

  writes_text: ClassVar[bool] = True  # the model predicts tokens
  per_token: ClassVar[bool] = False  # the loss is a sum over single tokens
  predicts_all: ClassVar[bool] = False  # tokens; texts may be split anywhere
  classifies: ClassVar[bool] = False  # documents have one of data.classes
  labels_tokens: ClassVar[bool] = False  # each read token
  reads_images: ClassVar[bool] = False  # not tokens
  reads_series: ClassVar[bool] = False  # of numbers, not tokens
  series_label: ClassVar[str] = ''  # what a series' label is; '': it has none
  answers: ClassVar[bool] = False  # a boundary ends a prompt; a reply follows
  columns: ClassVar[tuple[str, ...]] = ()  # of a row, together its document
  frames_as: ClassVar[str] = (
    ''  # the task as which a text is framed; '': itself
  )
  loss_per: ClassVar[str] = 'token'  # what the loss is a mean over
  predictor: ClassVar[str] = ''  # module of predictions (evaluation/run.py)

  def merged(self, run: str, step: int) -> typing.Self:
    """Returns the options of a run whose adapters changed this `run`'s step."""
    del run, step
    return self

  def renewed(self, other: 'Task') -> dict[str, str]:
    """Returns {parameter: why} of those that mean something else there.

    Fine-tuning doesn't take them from a run with the task `other`, even if
    their shapes match.
    """
    del other
    return {}


@dataclasses.dataclass(frozen=True)
class Data(Part):
  """The data and its batches: the options of all sources and layouts."""

  source: str = 'python_stdlib'  # a file of rnn_jax/data/sources; 'tfds:NAME'
  layout: str = 'buckets'  # a file of rnn_jax/data/batching/layouts
  classes: tuple[str, ...] = ()  # names, by number; empty: those of the data
  splits: tuple[int, ...] = (90, 5, 5)  # percent: train, validation, test
  split_by: str = option('document', choices=('document', 'position'))
  tokenizer: str = option('bytes', choices='data.text.tokenizer:KINDS')
  # Entries, of BPE or of numbers.
  vocabulary: int = option(512, minimum=2, maximum=2**24)
  pre_tokenizer: str = option(  # of BPE; 'whitespace' is lossy
    'byte_level', choices='data.text.tokenizer:PRE_TOKENIZERS'
  )
  # Words are read in lower case.
  lowercase: bool = option(False, needs="data.pre_tokenizer='whitespace'")
  length: int = option(256, minimum=1)  # tokens of the longest row
  # Tokens from a window of a text to the next; 0: `length`, no overlap.
  stride: int = option(
    0, minimum=0, excludes=('task.predicts_all=False', 'data.cuts_documents')
  )
  batch_size: int = option(32, minimum=1)  # rows
  # Above 0: rows = tokens_per_batch // length.
  tokens_per_batch: int = option(0, minimum=0)
  # Above 0: memory of a device, which determines tokens_per_batch.
  memory_gib: float = option(0.0, minimum=0, excludes='data.tokens_per_batch')
  length_schedule: tuple[int, ...] = ()  # lengths of rows before `length`
  length_schedule_epochs: int = option(  # of each length
    1, minimum=1, needs='data.length_schedule'
  )
  # Easy examples first, by this difficulty.
  curriculum: str = option('', choices='data.batching.curriculum:KINDS')
  # The column of numbers.
  difficulty: str = option('', needs="data.curriculum='column'")
  curriculum_shares: tuple[int, ...] = option(  # percent easy, by stage
    (80, 60, 40), needs='data.curriculum'
  )
  curriculum_epochs: int = option(  # of each stage but the last
    5, minimum=1, needs='data.curriculum'
  )
  workers: int = option(
    0, minimum=0
  )  # processes that make batches; 0: a thread
  prefetch: int = option(2, minimum=0)  # batches that are made in advance
  # Folder of token files; 'auto': the user's cache, for large data; '': none.
  cache: str = 'auto'
  # Of training text that the tokenizer is made from; 0: all.
  tokenizer_bytes: int = option(2**28, minimum=0)

  # What each layout declares:
  holds_images: ClassVar[bool] = False  # not tokens
  cuts_documents: ClassVar[bool] = False  # rows start anywhere
  restarts: ClassVar[bool] = False  # documents begin within rows
  carry_state: ClassVar[bool] = False  # from batch to batch
  pads: ClassVar[bool] = True  # batches have padding
  shapes_vary: ClassVar[bool] = False  # a run may not use all batch shapes
  same_rows: ClassVar[bool] = False  # batches of all lengths have the same
  # What each source declares:
  names_classes: ClassVar[bool] = (
    False  # `resolve` finds those that are missing
  )
  holds_series: ClassVar[bool] = False  # of numbers, not texts
  labels_series: ClassVar[bool] = False  # which have labels

  def resolve(self, task: Task) -> typing.Self:
    """Returns the options with those that only the data know.

    Raises:
      InputError: the data can't be read, or they leave a choice.
    """
    del task
    return self

  @property
  def covariate_widths(self) -> tuple[int, int, int, int] | None:
    """The widths of a batch's covariates; None: series have none."""
    return None

  def __reduce__(self):
    # The class combines a source's and a layout's, and can't be imported.
    return _data, (dict(vars(self)),)

  def prompt(self) -> str:
    """Returns what a sample continues, if sample.prompt is empty.

    '': the sample starts a document.
    """
    return ''

  def row_lengths(self) -> tuple[int, ...] | None:
    """Returns the lengths of rows, or None if they depend on the text."""
    return (self.length,)

  def shortened(self, length: int) -> typing.Self:
    """Returns the options with rows of another length."""
    return dataclasses.replace(self, length=length)

  def heldout(self, evaluate: typing.Any) -> typing.Self:
    """Returns the options for evaluation."""
    return dataclasses.replace(
      self,
      length=evaluate.length or self.length,
      stride=0,
      batch_size=evaluate.batch_size,
    )

  def refitted(self) -> typing.Self:
    """Returns the options for other documents than those they were made for."""
    return self

  def holding(self, documents: typing.Any) -> typing.Self:
    """Returns the options with rows for other documents, if none may be cut."""
    del documents
    return self

  def window_length(self) -> int:
    """Returns the tokens of the windows that examples are split into."""
    return self.length


def _data(given):
  return parts.section('data', **given)


@dataclasses.dataclass(frozen=True)
class Optimizer(Part):
  """The optimizer, after a clip by global norm.

  The options of all optimizers, and what each optimizer declares.
  """

  name: str = 'adamw'  # a file of rnn_jax/training/optimizers, or your module
  learning_rate: float = option(1e-3, minimum=0)  # the peak
  # Of kernels; not of embeddings, biases, gates.
  weight_decay: float = option(0.01, minimum=0)
  weight_decays: tuple[tuple[str, float], ...] = ()  # (pattern, weight decay)
  multipliers: tuple[tuple[str, float], ...] = ()  # (pattern, of the rate)
  frozen: tuple[str, ...] = ()  # patterns of parameters that never change
  clip_norm: float = option(1.0, minimum=0)  # 0: no clipping
  # Of an exponential moving average of the parameters; 0: none.
  ema_decay: float = option(
    0.0,
    below=1,
    excludes=('optimizer.gradients_elsewhere', 'schedule.rescales'),
  )
  offload: bool = False  # keep the state in host memory between steps

  whole_matrices: ClassVar[bool] = False  # parameters can't be sharded
  gradients_elsewhere: ClassVar[bool] = False  # not taken at the parameters

  @property
  def elsewhere(self) -> tuple[str, str | float] | None:
    """The key, with its value, that moves gradients from the parameters."""
    if self.gradients_elsewhere:
      return 'optimizer.name', self.name
    if self.ema_decay:
      return 'optimizer.ema_decay', self.ema_decay
    return None

  @property
  def blockwise_state(self) -> bool:
    """Whether blocks of the state span several axes of a parameter."""
    return False


@dataclasses.dataclass(frozen=True)
class Schedule(Part):
  """A linear warm-up, then `name`: the options of all schedules."""

  name: str = 'cosine'  # a file of rnn_jax/training/schedules, or your module
  # More than train.steps: half of these.
  warmup_steps: int = option(100, minimum=0)

  falls: ClassVar[bool] = True  # the rate, after the warm-up
  rescales: ClassVar[bool] = False  # the rate, after evaluations
