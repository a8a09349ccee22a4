"""The sections of a config, and the options that all parts of a kind share.

A section that names a part (a task, a source, a layout, an optimizer, a
schedule) has the options of all of these here; the part's file adds its own,
see `parts`. Sections with a file of their own, such as `mesh`, are there.
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import ClassVar

from rnn_jax.config import parts
from rnn_jax.config.adapters import Adapters
from rnn_jax.config.compression import Distillation
from rnn_jax.config.compression import Pruning
from rnn_jax.config.experts import Experts
from rnn_jax.config.mesh import Mesh
from rnn_jax.config.values import option

FLOAT16 = "train.precision='float16'"
MAX_SEED = 2**32 - 1  # jax.random.key takes no more: 2**32 would be 0


class Part:
  """Base of the sections that name a part, whose file adds options.

  Attributes:
    excludes: conditions with which the part isn't available: `conditions`.
  """

  excludes: ClassVar[tuple[str, ...]] = ()

  if typing.TYPE_CHECKING:

    def __getattr__(self, name: str) -> typing.Any: ...


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

  def check(self, config: 'Config') -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """


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
  vocabulary: int = option(512, least=2, most=2**24)
  pre_tokenizer: str = option(  # of BPE; 'whitespace' is lossy
    'byte_level', choices='data.text.tokenizer:PRE_TOKENIZERS'
  )
  length: int = option(256, least=1)  # tokens of the longest row
  # Tokens from a window of a text to the next; 0: `length`, no overlap.
  stride: int = option(
    0, least=0, excludes=('task.predicts_all=False', 'data.cuts_documents')
  )
  batch_size: int = option(32, least=1)  # rows
  # Above 0: rows = tokens_per_batch // length.
  tokens_per_batch: int = option(0, least=0)
  # Above 0: memory of a device, which determines tokens_per_batch.
  memory_gib: float = option(0.0, least=0, excludes='data.tokens_per_batch')
  length_schedule: tuple[int, ...] = ()  # lengths of rows before `length`
  length_schedule_epochs: int = option(  # of each length
    1, least=1, needs='data.length_schedule'
  )
  # Easy examples first, by this difficulty.
  curriculum: str = option('', choices='data.batching.curriculum:KINDS')
  # The column of numbers.
  difficulty: str = option('', needs="data.curriculum='column'")
  curriculum_shares: tuple[int, ...] = option(  # percent easy, by stage
    (80, 60, 40), needs='data.curriculum'
  )
  curriculum_epochs: int = option(  # of each stage but the last
    5, least=1, needs='data.curriculum'
  )
  workers: int = option(0, least=0)  # processes that make batches; 0: a thread
  prefetch: int = option(2, least=0)  # batches that are made in advance
  # Folder of token files; 'auto': the user's cache, for large data; '': none.
  cache: str = 'auto'
  # Of training text that the tokenizer is made from; 0: all.
  tokenizer_bytes: int = option(2**28, least=0)

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

  def check(self, config: 'Config') -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """

  def resolve(self, task: Task) -> typing.Self:
    """Returns the options with those that only the data know.

    Raises:
      InputError: the data can't be read, or they leave a choice.
    """
    del task
    return self

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

  def heldout(self, evaluate: 'Evaluate') -> typing.Self:
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

  def window_length(self) -> int:
    """Returns the tokens of the windows that examples are split into."""
    return self.length


def _data(given):
  return parts.section('data', **given)


@dataclasses.dataclass(frozen=True)
class Image:
  """The format of images, for layout 'images'."""

  size: int = option(32, least=1)  # pixels of each side
  channels: int = option(3, choices=(1, 3))  # 1: gray
  resize: bool = False  # images of other sizes; else they are an error
  mean: tuple[float, ...] = (0.5,)  # of pixels from 0 to 1, or of each channel
  std: tuple[float, ...] = (0.5,)  # the same
  crop: int = option(0, least=0)  # in training: random shift in pixels, at most
  flip: bool = False  # in training: mirror each with probability 1/2


@dataclasses.dataclass(frozen=True)
class Model:
  """The stack around the cell, whose options are section `cell`."""

  cell: str = 'simple_rnn'  # a file of rnn_jax/cells, or your module
  # Or several, a pattern that layers repeat: config/pattern.py.
  cells: tuple[str, ...] = ()
  block: str = option('residual', choices='models.blocks:BLOCKS')
  layers: int = option(2, least=1)
  shared_layers: bool = False  # all layers have the same parameters
  width: int = option(128, least=1)
  embedding_width: int = option(0, least=0)  # 0: width; only 'plain' can differ
  mlp_width: int = option(  # 0: no MLP between cells
    0, least=0, needs="model.block='residual'"
  )
  mlp: str = option('swiglu', choices='models.mlp:ACTIVATIONS')
  swish_beta: float = option(  # x sigmoid(beta x)
    1.0, needs=('model.mlp_width', 'model.mlp=models.mlp:WITH_BETA')
  )
  experts: Experts = Experts()
  norm: str = option('rms', choices='models.blocks:NORMS')
  norm_scale: bool = option(False, needs="model.norm='rms'")  # 'layer' has one
  # That scale is 1 + its parameter.
  norm_plus_one: bool = option(False, needs='model.norm_scale')
  # Added to the mean square; 0: 1e-6 for 'rms', 1e-5 for others.
  norm_epsilon: float = option(0.0, least=0)
  embedding_norm: bool = option(  # a norm of the first layer's inputs
    False,
    needs="model.block=('residual', 'plain')",
    excludes='task.reads_images',
  )
  biases: bool = False  # of the MLP's matrices
  # Added to the embedding.
  positions: str = option('none', choices='models.positions:KINDS')
  max_positions: int = option(  # 0: data.length
    0, least=0, needs="model.positions='learned'"
  )
  embedding_scale: float = option(1.0, least=0)  # initial standard deviation
  embedding_multiplier: float = 1.0  # of the embeddings of tokens
  # Initial standard deviation; 0: by the width.
  kernel_scale: float = option(0.0, least=0)
  # Of what blocks add to the residual, initially.
  branch_scale: float = option(1.0, least=0)
  dropout: float = option(0.0, below=1)
  # 'channels': for all of a row's steps.
  dropout_shape: str = option('channels', choices=('channels', 'elements'))
  token_dropout: float = option(0.0, below=1)  # of whole input tokens
  tied: bool = False  # the head is the transposed embedding
  # Of the embedding as a head; 0: width ** -0.5.
  tied_multiplier: float = option(0.0, least=0)
  head_bias: bool = option(True, excludes='model.tied')  # of the head
  # s of the logits s tanh(z / s), which stay within s; 0: they are z.
  logits_cap: float = option(0.0, least=0, excludes='task.reads_images')
  # Layers per iteration of the layer scan, or periods of `cells`.
  unroll: int = option(1, least=1)

  @property
  def pattern(self) -> tuple[str, ...]:
    """The cells of a period: one, or those of `cells`."""
    return self.cells or (self.cell,)

  @property
  def periods(self) -> int:
    """How many times the layers repeat the pattern."""
    return self.layers // len(self.pattern)

  def of_cell(self, name: str) -> typing.Self:
    """Returns the options of a stack with only one of the pattern's cells."""
    return dataclasses.replace(self, cell=name, cells=())

  @property
  def dense(self) -> typing.Self:
    """The options of one of the first layers, which have no experts."""
    width = self.experts.dense_width
    return dataclasses.replace(self, mlp_width=width, experts=Experts())

  @property
  def routed(self) -> typing.Self:
    """The options of the layers after those."""
    own = dataclasses.replace(self.experts, dense_layers=0, dense_width=0)
    return dataclasses.replace(self, experts=own)


@dataclasses.dataclass(frozen=True)
class Vision:
  """How images become rows of patches, and rows classes."""

  # Pixels of each side.
  patch: int = option(4, least=1, needs='task.reads_images')
  # 'mean' of a row's steps; 'token': an extra first one.
  pooling: str = option(
    'mean', choices=('mean', 'token'), needs='task.reads_images'
  )


@dataclasses.dataclass(frozen=True)
class Recurrence:
  """How the recurrence is computed: costs, and of numbers only the rounding."""

  # 'auto', 'scan'; most have 'chunked', 'associative', 'native' (CPU), 'pallas'
  # (GPU); attention 'exact', 'blocked', 'cudnn' (GPU); lstm 'cudnn' (GPU); bdh
  # 'pairs', and with sees='row' 'state', 'blocked'
  impl: str = 'auto'
  chunk_length: int = option(0, least=0)  # steps between stored states; 0: auto
  # The format of the operands of 'chunked' and 'pallas'; 'auto': that of
  # train.precision on a GPU, float32 on a CPU. States and sums are float32.
  operands: str = option('auto', choices='ops.precision:OF_RECURRENCE')


@dataclasses.dataclass(frozen=True)
class Remat:
  """Which states are stored for the backward pass; it recomputes the others."""

  # Store the state every K steps; 'sqrt'; 'auto'; 0: all.
  every: int | str = option(0, excludes="recurrence.impl='associative'")
  # Which of these states are stored.
  schedule: str = option(
    'uniform', choices='ops.remat_schedules:NAMES', needs='remat.every'
  )
  # States at a time; 0: log2.
  kept: int = option(0, least=0, needs="remat.schedule='binomial'")
  memory_gib: float = option(  # of a device
    0.0, least=0, needs="remat.every='auto'", excludes='data.memory_gib'
  )
  # Steps of the whole model at a time; 0: all.
  segment: int = option(0, least=0)
  layers: int = option(0, least=0)  # store every k-th layer's input; 0: all
  # Store all of so many between groups.
  stored_layers: int = option(0, least=0, needs='remat.layers')
  # Also stored, within layers: models/remat.py.
  keep: tuple[str, ...] = option((), needs='remat.layers')
  # Store what `keep` names in host memory.
  offload: bool = option(False, needs='remat.keep')


@dataclasses.dataclass(frozen=True)
class Optimizer(Part):
  """The optimizer, after a clip by global norm.

  The options of all optimizers, and what each optimizer declares.
  """

  name: str = 'adamw'  # a file of rnn_jax/training/optimizers, or your module
  learning_rate: float = option(1e-3, least=0)  # the peak
  # Of kernels; not of embeddings, biases, gates.
  weight_decay: float = option(0.01, least=0)
  weight_decays: tuple[tuple[str, float], ...] = ()  # (pattern, weight decay)
  multipliers: tuple[tuple[str, float], ...] = ()  # (pattern, of the rate)
  frozen: tuple[str, ...] = ()  # patterns of parameters that never change
  clip_norm: float = option(1.0, least=0)  # 0: no clipping
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

  def check(self, config: 'Config') -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """


@dataclasses.dataclass(frozen=True)
class Schedule(Part):
  """A linear warm-up, then `name`: the options of all schedules."""

  name: str = 'cosine'  # a file of rnn_jax/training/schedules, or your module
  # More than train.steps: half of these.
  warmup_steps: int = option(100, least=0)

  constant: ClassVar[bool] = False  # the peak, after the warm-up
  rescales: ClassVar[bool] = False  # the rate, after evaluations

  def check(self, config: 'Config') -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """


@dataclasses.dataclass(frozen=True)
class Train:
  """The run."""

  steps: int = option(1000, least=0)  # optimizer steps; 0: by `epochs`
  # Over the training text; 0: by `steps`.
  epochs: float = option(0.0, least=0, excludes='train.steps')
  seed: int = option(0, least=0, most=MAX_SEED)
  precision: str = option('float32', choices='ops.precision:POLICIES')
  loss_scale: float = option(32768.0, needs=FLOAT16)  # initially
  loss_scale_steps: int = option(  # finite steps to double it
    2000, least=1, needs=FLOAT16
  )
  # Matmuls of the forward pass: 'fp8' is e4m3, see ops/eight_bits.py.
  quantized: str = option('', choices=('', 'int8', 'fp8'))
  compiler: str = option('default', choices='config.compiler:NAMES')
  # Fraction of the target that is spread over all tokens.
  label_smoothing: float = option(0.0, below=1)
  z_loss: float = option(0.0, least=0)  # of log^2 of softmax's denominator
  accumulate: int = option(1, least=1)  # micro-batches per batch
  log_every: int = option(20, least=1)
  # Sizes of updates in the metrics; with 8-bit moments they take memory.
  update_norms: bool = False
  checkpoint_every: int = option(200, least=1)
  checkpoint_dir: str = ''  # or gs://BUCKET/FOLDER; empty: in the work folder
  keep_checkpoints: int = option(2, least=1)  # the newest ones, and the best
  # Non-finite steps in a row before the run stops.
  max_skipped_steps: int = option(10, least=1)


@dataclasses.dataclass(frozen=True)
class Evaluate:
  """Evaluation on held-out documents during training."""

  every: int = option(200, least=0)  # steps; 0: only at the end
  # About how many tokens it reads, evenly from the split; 0: all of it.
  tokens: int = option(1_000_000, least=0)
  batch_size: int = option(32, least=1)
  length: int = option(0, least=0)  # tokens per row; 0: data.length
  segment_tokens: int = option(  # 0: data.segment_tokens
    0, least=0, needs='data.cuts_documents'
  )
  # Of the best checkpoint; 'errors': the error rate.
  criterion: str = option('loss', choices=('loss', 'errors'))
  # Evaluations without a new best before a stop; 0: never.
  patience: int = option(0, least=0)


@dataclasses.dataclass(frozen=True)
class Metrics:
  """Where the measurements of a run go, for you to follow it."""

  # Files of rnn_jax/runs/writers, or your modules; 'jsonl' is always written.
  writers: tuple[str, ...] = ('jsonl', 'tensorboard')


@dataclasses.dataclass(frozen=True)
class Sample:
  """Text that the trained model writes to the terminal."""

  prompt: str = ''  # empty: the data source's, or the start of a document
  new_tokens: int = option(200, least=0, most=100_000)
  temperature: float = option(0.8, least=0)
  top_k: int = option(50, least=0)


@dataclasses.dataclass(frozen=True)
class Config:
  """The config of a run. A part's section is the Config of the part's file.

  `given` has the values that keys had which `resolve` has filled in since.
  """

  task: Task = Task()
  data: Data = Data()
  model: Model = Model()
  vision: Vision = Vision()
  cell: typing.Any = None
  recurrence: Recurrence = Recurrence()
  remat: Remat = Remat()
  optimizer: Optimizer = Optimizer()
  schedule: Schedule = Schedule()
  train: Train = Train()
  mesh: Mesh = Mesh()
  pruning: Pruning = Pruning()
  distillation: Distillation = Distillation()
  adapters: Adapters = Adapters()
  evaluate: Evaluate = Evaluate()
  metrics: Metrics = Metrics()
  sample: Sample = Sample()
  given: Mapping[str, typing.Any] = dataclasses.field(
    default_factory=dict, hash=False
  )
