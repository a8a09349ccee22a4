"""A config and its sections, but those that have a file of their own."""

import dataclasses
import typing
from collections.abc import Mapping

from rnn_jax.config.adapters import Adapters
from rnn_jax.config.compression import Distillation
from rnn_jax.config.compression import Pruning
from rnn_jax.config.experts import Experts
from rnn_jax.config.mesh import Mesh
from rnn_jax.config.part_sections import Data
from rnn_jax.config.part_sections import Optimizer
from rnn_jax.config.part_sections import Schedule
from rnn_jax.config.part_sections import Task
from rnn_jax.config.shared_block import SharedBlock
from rnn_jax.config.values import option

FLOAT16 = "train.precision='float16'"
MAX_SEED = 2**32 - 1  # jax.random.key takes no more: 2**32 would be 0


@dataclasses.dataclass(frozen=True)
class Image:
  """The format of images, for layout 'images'."""

  size: int = option(32, minimum=1)  # pixels of each side
  channels: int = option(3, choices=(1, 3))  # 1: gray
  resize: bool = False  # images of other sizes; else they are an error
  mean: tuple[float, ...] = (0.5,)  # of pixels from 0 to 1, or of each channel
  std: tuple[float, ...] = (0.5,)  # the same
  crop: int = option(
    0, minimum=0
  )  # in training: random shift in pixels, at most
  flip: bool = False  # in training: mirror each with probability 1/2


@dataclasses.dataclass(frozen=True)
class Model:
  """The stack around the cell, whose options are section `cell`."""

  cell: str = 'simple_rnn'  # a file of rnn_jax/cells, or your module
  # Or several, a pattern that layers repeat: config/pattern.py.
  cells: tuple[str, ...] = ()
  block: str = option('residual', choices='models.blocks:BLOCKS')
  layers: int = option(2, minimum=1)
  shared_layers: bool = False  # all layers have the same parameters
  width: int = option(128, minimum=1)
  embedding_width: int = option(
    0, minimum=0
  )  # 0: width; only 'plain' can differ
  # Each block has a second cell, which reads a text backwards; both are half
  # as wide. Only for tasks that predict nothing of what is read.
  bidirectional: bool = option(
    False, excludes=('data.cuts_documents', 'remat.segment', 'mesh.sequence!=1')
  )
  mlp_width: int = option(  # 0: no MLP between cells
    0, minimum=0, needs="model.block='residual'"
  )
  mlp: str = option('swiglu', choices='models.mlp:ACTIVATIONS')
  # 'mlp', 'experts' or 'none' after each of `cells`; (): all layers are alike.
  mlps: tuple[str, ...] = option((), needs=('model.cells', 'model.mlp_width'))
  swish_beta: float = option(  # x sigmoid(beta x)
    1.0, needs=('model.mlp_width', 'model.mlp=models.mlp:WITH_BETA')
  )
  experts: Experts = Experts()
  shared_block: SharedBlock = SharedBlock()
  norm: str = option('rms', choices='models.blocks:NORMS')
  norm_scale: bool = option(False, needs="model.norm='rms'")  # 'layer' has one
  # That scale is 1 + its parameter.
  norm_plus_one: bool = option(False, needs='model.norm_scale')
  # Added to the mean square; 0: 1e-6 for 'rms', 1e-5 for others.
  norm_epsilon: float = option(0.0, minimum=0)
  embedding_norm: bool = option(  # a norm of the first layer's inputs
    False,
    needs="model.block=('residual', 'plain')",
    excludes='task.reads_images',
  )
  biases: bool = False  # of the MLP's matrices
  # Added to the embedding.
  positions: str = option('none', choices='models.positions:KINDS')
  max_positions: int = option(  # 0: data.length
    0, minimum=0, needs="model.positions='learned'"
  )
  embedding_scale: float = option(1.0, minimum=0)  # initial standard deviation
  embedding_multiplier: float = 1.0  # of the embeddings of tokens
  # Of what blocks add to the residual.
  residual_multiplier: float = option(1.0, needs="model.block='residual'")
  # Of what their MLPs add, besides.
  mlp_multiplier: float = option(1.0, needs='model.mlp_width')
  head_multiplier: float = option(  # of the head's inputs
    1.0, above=0, excludes='task.reads_images'
  )
  # Initial standard deviation; 0: by the width.
  kernel_scale: float = option(0.0, minimum=0)
  # Of what blocks add to the residual, initially.
  branch_scale: float = option(1.0, minimum=0)
  dropout: float = option(0.0, below=1)
  # 'channels': for all of a row's steps.
  dropout_shape: str = option('channels', choices=('channels', 'elements'))
  token_dropout: float = option(0.0, below=1)  # of whole input tokens
  tied: bool = False  # the head is the transposed embedding
  # Of the embedding as a head; 0: width ** -0.5.
  tied_multiplier: float = option(0.0, minimum=0)
  head_bias: bool = option(True, excludes='model.tied')  # of the head
  # s of the logits s tanh(z / s), which stay within s; 0: they are z.
  logits_cap: float = option(0.0, minimum=0, excludes='task.reads_images')
  # Layers per iteration of the layer scan, or periods of `cells`.
  unroll: int = option(1, minimum=1)

  @property
  def pattern(self) -> tuple[str, ...]:
    """The cells of a period: one, or those of `cells`."""
    return self.cells or (self.cell,)

  @property
  def cell_width(self) -> int:
    """The width of a cell's output: half of the block's with two of them."""
    return self.width // 2 if self.bidirectional else self.width

  @property
  def periods(self) -> int:
    """How many times the layers repeat the pattern."""
    return self.layers // len(self.pattern)

  def of_cell(self, name: str) -> typing.Self:
    """Returns the options of a stack with only one of the pattern's cells."""
    return dataclasses.replace(self, cell=name, cells=(), mlps=())

  def of_mlp(self, kind: str) -> typing.Self:
    """Returns the options of a layer with one of the kinds of `mlps`."""
    if kind == 'none':
      return dataclasses.replace(self, mlp_width=0, experts=Experts())
    return self.dense if kind == 'mlp' and self.experts.count else self.routed

  def of_layer(self, layer: int) -> typing.Self:
    """Returns the options of a layer, with the shared block that it uses."""
    own = self.shared_block.of_layer(layer)
    return dataclasses.replace(self, shared_block=own)

  def of_shared_mlp(self) -> typing.Self:
    """Returns the options with the activation of shared blocks."""
    return dataclasses.replace(self, mlp=self.shared_block.mlp)

  @property
  def dense(self) -> typing.Self:
    """The options of one of the first layers, which have no experts."""
    width = self.experts.dense_width
    return dataclasses.replace(self, mlp_width=width, experts=Experts())

  @property
  def routed(self) -> typing.Self:
    """The options of the layers after those."""
    if self.mlps:
      return self
    own = dataclasses.replace(self.experts, dense_layers=0, dense_width=0)
    return dataclasses.replace(self, experts=own)


@dataclasses.dataclass(frozen=True)
class Vision:
  """How images become rows of patches, and rows classes."""

  # Pixels of each side.
  patch: int = option(4, minimum=1, needs='task.reads_images')
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
  chunk_length: int = option(
    0, minimum=0
  )  # steps between stored states; 0: auto
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
  kept: int = option(0, minimum=0, needs="remat.schedule='binomial'")
  memory_gib: float = option(  # of a device
    0.0, minimum=0, needs="remat.every='auto'", excludes='data.memory_gib'
  )
  # Steps of the whole model at a time; 0: all.
  segment: int = option(0, minimum=0)
  layers: int = option(0, minimum=0)  # store every k-th layer's input; 0: all
  # Store all of so many between groups.
  stored_layers: int = option(0, minimum=0, needs='remat.layers')
  # Also stored, within layers: models/remat.py.
  keep: tuple[str, ...] = option((), needs='remat.layers')
  # Store what `keep` names in host memory.
  offload: bool = option(False, needs='remat.keep')


@dataclasses.dataclass(frozen=True)
class Train:
  """The run."""

  steps: int = option(1000, minimum=0)  # optimizer steps; 0: by `epochs`
  # Over the training text; 0: by `steps`.
  epochs: float = option(0.0, minimum=0, excludes='train.steps')
  seed: int = option(0, minimum=0, maximum=MAX_SEED)
  # Of the data's order, and of the initial parameters; -1: seed.
  order_seed: int = option(-1, minimum=-1, maximum=MAX_SEED)
  weights_seed: int = option(-1, minimum=-1, maximum=MAX_SEED)
  precision: str = option('float32', choices='ops.precision:POLICIES')
  loss_scale: float = option(32768.0, needs=FLOAT16)  # initially
  loss_scale_steps: int = option(  # finite steps to double it
    2000, minimum=1, needs=FLOAT16
  )
  # Matmuls of the forward pass: 'fp8' is e4m3, see ops/eight_bits.py.
  quantized: str = option('', choices=('', 'int8', 'fp8'))
  compiler: str = option('default', choices='config.compiler:NAMES')
  # Fraction of the target that is spread over all tokens.
  label_smoothing: float = option(0.0, below=1)
  z_loss: float = option(0.0, minimum=0)  # of log^2 of softmax's denominator
  accumulate: int = option(1, minimum=1)  # micro-batches per batch
  log_every: int = option(20, minimum=1)
  # Sizes of updates in the metrics; with 8-bit moments they take memory.
  update_norms: bool = False
  checkpoint_every: int = option(200, minimum=1)
  checkpoint_dir: str = ''  # or gs://BUCKET/FOLDER; empty: in the work folder
  keep_checkpoints: int = option(2, minimum=1)  # the newest ones, and the best
  # Non-finite steps in a row before the run stops.
  max_skipped_steps: int = option(10, minimum=1)

  @property
  def seed_of_order(self) -> int:
    """The seed that orders the data and samples it for bucket lengths."""
    return self.seed if self.order_seed < 0 else self.order_seed

  @property
  def seed_of_weights(self) -> int:
    """The seed of the initial parameters."""
    return self.seed if self.weights_seed < 0 else self.weights_seed


@dataclasses.dataclass(frozen=True)
class Evaluate:
  """Evaluation on held-out documents during training."""

  every: int = option(200, minimum=0)  # steps; 0: only at the end
  # About how many tokens it reads, evenly from the split; 0: all of it.
  tokens: int = option(1_000_000, minimum=0)
  batch_size: int = option(32, minimum=1)
  length: int = option(0, minimum=0)  # tokens per row; 0: data.length
  segment_tokens: int = option(  # 0: data.segment_tokens
    0, minimum=0, needs='data.cuts_documents'
  )
  # Of the best checkpoint; 'errors': the error rate.
  criterion: str = option('loss', choices=('loss', 'errors'))
  # Evaluations without a new best before a stop; 0: never.
  patience: int = option(0, minimum=0)


@dataclasses.dataclass(frozen=True)
class Metrics:
  """Where the measurements of a run go, for you to follow it."""

  # Files of rnn_jax/runs/writers, or your modules; 'jsonl' is always written.
  writers: tuple[str, ...] = ('jsonl', 'tensorboard')


@dataclasses.dataclass(frozen=True)
class Sample:
  """Text that the trained model writes to the terminal."""

  prompt: str = ''  # empty: the data source's, or the start of a document
  new_tokens: int = option(200, minimum=0, maximum=100_000)
  temperature: float = option(0.8, minimum=0)
  top_k: int = option(50, minimum=0)


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
