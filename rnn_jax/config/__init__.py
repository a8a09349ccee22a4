"""The configuration: declared once, as frozen dataclasses, and parsed once.

A config file calls `default()`, changes what it wants, and returns the result;
a launcher hands that to `parse()`, which checks types and every rule that
spans fields. Behind `parse()` a value is an attribute, never a lookup.
"""

import dataclasses
import importlib
import json
import math
import pkgutil
import typing

import ml_collections

from rnn_jax import errors
from rnn_jax.config import compression
from rnn_jax.config import mesh as mesh_rules
from rnn_jax.config import rules
from rnn_jax.config import values


@dataclasses.dataclass(frozen=True)
class Task:
  """What is learnt. A key of another task than `name` has no effect."""

  name: str = 'language_modeling'  # a file of rnn_jax/tasks
  answer: str = 'pooled'  # classification: a head; 'word': write the class
  pooling: str = 'mean'  # of a text's states; 'max', 'last', 'concat' of all
  evidence: float = 0.0  # of naive Bayes at the start; 0: none
  text_weight: float = 0.0  # answer 'pooled': of predicting the text as well
  turns: str = 'all'  # dialogue: each turn is a reply; 'first': the second
  least_reply_tokens: int = 0  # dialogue: of a reply written in evaluation
  reply_tokens: int = 50  # dialogue: the longest reply written in evaluation
  reply_temperature: float = 0.0  # dialogue: of sampling one; 0: the likeliest

  @property
  def writes_text(self) -> bool:
    """Whether the model predicts tokens, and not classes alone."""
    words = self.name != 'classification' or self.answer == 'word'
    return words and self.name != 'image_classification'


@dataclasses.dataclass(frozen=True)
class Synthetic:
  """What sources 'recall', 'copying' and 'selective_copying' make."""

  pairs: int = 4  # keys with their values; of copying: letters
  distance: int = 16  # characters between them and the first question
  symbols: int = 8  # letters that they are drawn from, 26 at most
  examples: int = 20_000  # documents, of all splits
  seed: int = 0  # another one makes other documents


@dataclasses.dataclass(frozen=True)
class Image:
  """What pictures are like; of layout 'images' alone."""

  size: int = 32  # pixels of each side
  channels: int = 3  # or 1: grey
  resize: bool = False  # pictures of other sizes; else they are refused
  mean: tuple[float, ...] = (0.5,)  # of pixels from 0 to 1, or of each channel
  deviation: tuple[float, ...] = (0.5,)  # the same
  crop: int = 0  # of training: moved by so many pixels at most, black behind
  flip: bool = False  # of training: every other one mirrored, by chance


@dataclasses.dataclass(frozen=True)
class Data:
  """What is read and how it becomes batches."""

  source: str = 'python_stdlib'  # a file of rnn_jax/data/sources; 'tfds:NAME'
  data_dir: str = 'data'  # source 'tfds': where datasets are prepared
  path: str = ''  # a file or a glob; refused by sources that read none
  validation_path: str = ''  # held-out files; empty: split off `path`
  test_path: str = ''
  field: str = 'text'  # the column that holds the text, or a list of turns
  label: str = 'label'  # task 'classification': the column of the class
  classes: tuple[str, ...] = ()  # the classes by number, or by these names
  splits: tuple[int, ...] = (90, 5, 5)  # per cent: train, validation, test
  split_by: str = 'document'  # or 'position': the first 90 % of each document
  tokenizer: str = 'bytes'  # or 'characters', 'bpe', 'numbers'
  vocabulary: int = 512  # entries of a vocabulary of BPE or of numbers
  pre_tokenizer: str = 'byte_level'  # of BPE; or 'whitespace', which is lossy
  layout: str = 'buckets'  # 'padded', 'sorted', 'packed', 'stream', 'images'
  length: int = 256  # tokens of the longest row
  boundaries: tuple[int, ...] = ()  # bucket lengths; empty: by `bucketing`
  bucketing: str = 'quantile'  # or 'balanced', 'least_padding', 'powers'
  buckets: int = 4  # how many there are at most; 'powers' has its own
  rarity_buckets: int = 1  # above 1: each bucket is split by rarity as well
  length_multiple: int = 8  # of 'padded', 'sorted': lengths are multiples
  pool: int = 16  # layout 'sorted': batches' worth of examples that are sorted
  fit: str = 'first'  # or 'best': the row of a pack that an example goes to
  batch_size: int = 32  # rows
  tokens_per_batch: int = 0  # above 0: rows = tokens_per_batch // length
  memory_gib: float = 0.0  # above 0: of a device; tokens_per_batch follows
  growth: tuple[int, ...] = ()  # lengths that come before `length`
  growth_epochs: int = 1  # how long each of them lasts
  curriculum: str = ''  # or 'length', 'rarity', 'column': easy examples first
  difficulty: str = ''  # curriculum 'column': the column of its numbers
  curriculum_shares: tuple[int, ...] = (80, 60, 40)  # per cent easy, by stage
  curriculum_epochs: int = 1  # how long each stage lasts
  carry_state: bool = False  # layout 'stream': keep the state between windows
  stretch: int = 16384  # layout 'stream': bytes that one row reads in a line
  workers: int = 1  # processes that read and tokenize; 0: this process
  prefetch: int = 2  # batches made ahead
  synthetic: Synthetic = Synthetic()
  image: Image = Image()

  @property
  def padded_lengths(self) -> tuple[int, ...]:
    """Of batches as long as their longest row, rounded up."""
    multiple = self.length_multiple
    return (*range(multiple, self.length, multiple), self.length)


@dataclasses.dataclass(frozen=True)
class Model:
  """The stack around the cell. The cell's own options are section `cell`."""

  cell: str = 'simple_rnn'  # a file of rnn_jax/cells
  block: str = 'residual'  # or 'plain', 'normed', 'renormed': models/blocks.py
  layers: int = 2
  shared_layers: bool = False  # all layers have the same parameters
  width: int = 128
  embedding_width: int = 0  # 0: width; block 'plain' alone can differ
  mlp_width: int = 0  # 0: no MLP between cells
  mlp: str = 'swiglu'  # or 'geglu', 'gelu', 'gelu_tanh', 'relu'
  norm: str = 'rms'  # or 'layer', with scale and bias; 'standard': without
  biases: bool = False  # of the MLP's matrices
  positions: str = 'none'  # or 'sinusoidal', 'learned': added to the embedding
  longest: int = 0  # learned positions; 0: data.length
  embedding_scale: float = 1.0  # standard deviation at the start
  embedding_multiplier: float = 1.0  # of what is read of the embedding
  kernel_scale: float = 0.0  # standard deviation at the start; 0: by the width
  branch_scale: float = 1.0  # of what blocks add to the residual, at the start
  dropout: float = 0.0
  dropout_shape: str = 'channels'  # for all of a row's steps; or 'elements'
  token_dropout: float = 0.0  # of whole tokens that are read
  tied: bool = False  # the head is the transposed embedding
  tied_multiplier: float = 0.0  # of it as a head; 0: width ** -0.5
  head_bias: bool = True  # of the head
  unroll: int = 1  # layers inlined in one turn of the scan over layers


@dataclasses.dataclass(frozen=True)
class Vision:
  """How pictures become rows of patches, and rows classes."""

  patch: int = 4  # pixels of each side
  pooling: str = 'mean'  # of a row's steps; or 'token': one more, in front


@dataclasses.dataclass(frozen=True)
class Recurrence:
  """How the recurrence is computed: the same numbers, other costs."""

  impl: str = 'auto'  # 'scan'; 'chunked', 'associative', 'pallas' (GPU); of
  # cell 'attention': 'exact', 'blocked', 'cudnn' (GPU); of 'bdh': 'pairs'; of
  # 'lstm', 'min_lstm' and 'gru': 'native' (CPU, C++)
  chunk_length: int = 128  # the best on a CPU: docs/benchmarks.md


@dataclasses.dataclass(frozen=True)
class Remat:
  """Which states the backward pass finds kept; it computes the others again."""

  every: int | str = 0  # keep the state every K steps; 'sqrt'; 'auto'; 0: all
  schedule: str = 'uniform'  # which of these: see ops/remat_schedules.py
  kept: int = 0  # under 'binomial', so many at a time; 0: log2 of their number
  memory_gib: float = 0.0  # of a device, from which 'auto' follows
  segment: int = 0  # steps of the whole model at a time; 0: all of a row's
  layers: int = 0  # keep what enters every k-th layer; 0: all of each layer
  keep: tuple[str, ...] = ()  # inside layers, besides: see models/remat.py
  offload: bool = False  # what `keep` names lies in host memory


@dataclasses.dataclass(frozen=True)
class Optimizer:
  """How gradients, clipped by their global norm, change parameters."""

  name: str = 'adamw'  # a file of rnn_jax/training/optimizers
  learning_rate: float = 1e-3  # the peak; adafactor: relative, about 1e-2
  b1: float = 0.9  # of the momentum, or of Adam's first moment
  b2: float = 0.99  # of the second moment, and of lion's momentum
  eps: float = 1e-8  # beside roots of second moments; shampoo: at the start
  nesterov: bool = False  # of sgd, lars, muon: the momentum looks ahead
  trust: float = 1e-3  # of lars: a step's size beside the parameter's
  longest_side: int = 1024  # of kfac, shampoo: longer axes have a diagonal
  roots_every: int = 10  # of kfac, shampoo: steps between inverses
  damping: float = 1e-2  # of kfac: beside the mean curvature of a layer
  grafting: str = 'adam'  # of shampoo: whose steps' length it takes; 'none'
  weight_decay: float = 0.01  # on kernels; not on embeddings, biases, gates
  weight_decays: tuple[tuple[str, float], ...] = ()  # (pattern, weight decay)
  multipliers: tuple[tuple[str, float], ...] = ()  # (pattern, of the rate)
  frozen: tuple[str, ...] = ()  # patterns of parameters that never change
  clip_norm: float = 1.0  # 0: no clipping
  moments: str = 'float32'  # of adamw, stored; or 'bfloat16', 'int8'
  offload: bool = False  # the state lies in host memory between steps


@dataclasses.dataclass(frozen=True)
class Schedule:
  """Linear warm-up, then what `name` says."""

  name: str = 'cosine'  # a file of rnn_jax/training/schedules
  warmup_steps: int = 100
  final_learning_rate: float = 1e-4  # at the last step; plateau: the least
  factor: float = 0.5  # of plateau: what the rate is multiplied by
  patience: int = 5  # of plateau: evaluations without a new best before that
  decay_steps: int = 0  # of stable_decay, the last ones; 0: a tenth of all
  cycle_steps: int = 0  # of cyclical, one_cycle, up and down; 0: see there
  low_learning_rate: float = 1e-4  # of cyclical, one_cycle: where cycles begin


@dataclasses.dataclass(frozen=True)
class Train:
  """The run."""

  steps: int = 1000  # optimizer steps
  seed: int = 0
  precision: str = 'float32'  # tf32, bfloat16, bfloat16_operands, float16
  loss_scale: float = 32768.0  # at the start; of precision 'float16' alone
  loss_scale_steps: int = 2000  # good steps before it doubles
  quantized: str = ''  # or 'int8': matmuls of the forward pass
  compiler: str = 'default'  # options of XLA by name: config/compiler.py
  label_smoothing: float = 0.0  # share of the target spread over all tokens
  z_loss: float = 0.0  # times log^2 of the softmax's denominator
  accumulate: int = 1  # micro-batches a step; they divide the batch
  log_every: int = 20
  checkpoint_every: int = 200
  checkpoint_dir: str = ''  # or gs://BUCKET/FOLDER; empty: in the work folder
  keep_checkpoints: int = 2  # the newest ones; the best is kept besides
  max_skipped_steps: int = 10  # non-finite steps in a row before the run stops


@dataclasses.dataclass(frozen=True)
class Mesh:
  """How devices share the work: the sizes of the mesh's axes, parallel/axes.py.

  One size may be -1: what the others leave.
  """

  data: int = -1  # copies of the model, each with its rows of a batch
  fsdp: int = 1  # rows too; the state is cut over it as `zero` says
  pipe: int = 1  # groups of layers
  sequence: int = 1  # stretches of time
  tensor: int = 1  # heads, columns of the MLP, vocabulary
  zero: int = 3  # 1: the optimizer's state, 2: and gradients, 3: and parameters
  rules: tuple[str, ...] = (  # LETTER=AXIS of parameters, parallel/rules.py
    'R=pipe',
    'D=fsdp',
    'S=fsdp',
    'H=tensor',
    'F=tensor',
    'V=tensor',
  )
  micro_batches: int = 0  # of a device's rows, in a pipeline; 0: `pipe`
  schedule: str = 'gpipe'  # of a pipeline; or '1f1b', which holds less
  compression: str = ''  # of gradients summed over data: 'int8' or 'top_k'
  top_k_share: float = 0.01  # of a gradient's numbers that are sent at once


@dataclasses.dataclass(frozen=True)
class Evaluate:
  """Evaluation on the whole held-out split while training."""

  every: int = 200  # steps; 0: at the end alone
  batch_size: int = 32
  length: int = 0  # tokens a row; 0: data.length
  stretch: int = 0  # bytes between resets of the state; 0: data.stretch
  criterion: str = 'loss'  # of the best checkpoint; or 'errors', their share
  patience: int = 0  # evaluations without a new best before a stop; 0: never


@dataclasses.dataclass(frozen=True)
class Sample:
  """What the finished model writes to the terminal."""

  prompt: str = ''  # empty: the start of a document
  new_tokens: int = 200
  temperature: float = 0.8
  top_k: int = 50


@dataclasses.dataclass(frozen=True)
class Config:
  """One run. `cell` is the Config class of the cell's own file."""

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
  pruning: compression.Pruning = compression.Pruning()
  distillation: compression.Distillation = compression.Distillation()
  evaluate: Evaluate = Evaluate()
  sample: Sample = Sample()


def default(cell='simple_rnn'):
  """Returns every key with its default, a locked ml_collections.ConfigDict."""
  defaults = Config(model=Model(cell=cell), cell=cell_options(cell)())
  return values.to_config_dict(defaults)


def cell_options(name):
  """Returns the dataclass of the options of `rnn_jax/cells/<name>.py`."""
  return load('cells', name, 'model.cell').Config


def load(folder, name, key):
  """Imports `rnn_jax/<folder>/<name>.py`, which the config's `key` names.

  Raises:
    InputError: there is no such file; the message lists those that exist.
  """
  package = _locate(folder, name, key)
  return importlib.import_module(f'{package}.{name}')


def parse(raw):
  """Checks a ConfigDict (or a dict) and returns the frozen Config.

  Raises:
    InputError: an unknown key, a wrong type, or values that contradict each
      other; the message names the key, the value and the remedy.
  """
  raw = raw.to_dict() if isinstance(raw, ml_collections.ConfigDict) else raw
  config = values.build(Config, {**raw, 'cell': {}}, '')
  options = cell_options(config.model.cell)
  config = dataclasses.replace(
    config, cell=values.build(options, raw.get('cell') or {}, 'cell.')
  )
  _locate('tasks', config.task.name, 'task.name')
  _locate('data/sources', config.data.source.partition(':')[0], 'data.source')
  _locate('training/optimizers', config.optimizer.name, 'optimizer.name')
  _locate('training/schedules', config.schedule.name, 'schedule.name')
  rules.check(config)
  compression.check(config)
  mesh_rules.check(config)
  return dataclasses.replace(config, cell=config.cell.settle(config))


def to_dict(config):
  """Returns the config as plain, JSON-ready dicts."""
  return dataclasses.asdict(config)


def to_json(config):
  """Returns the config as indented JSON."""
  return json.dumps(to_dict(config), indent=2)


def completed(raw):
  """Returns a config's dict with what it lacks of today's keys, by default."""
  return _completed(raw, default(raw['model']['cell']).to_dict())


def _completed(raw, defaults):
  found = dict(raw)
  for key, value in defaults.items():
    if isinstance(value, dict):
      found[key] = _completed(raw.get(key, {}), value)
    else:
      found.setdefault(key, value)
  return found


def remat_length(every, length):
  """Steps between kept states for rows of `length` tokens; 0 for no remat.

  'auto' stands for none until training.remat_budget has chosen.
  """
  if every == 'sqrt':
    return math.isqrt(length - 1) + 1
  return 0 if every == 'auto' else every


def names(folder):
  """Lists what a config can name of `rnn_jax/<folder>`: its files but base."""
  modules = pkgutil.iter_modules(_package(folder).__path__)
  return sorted({m.name for m in modules if not m.ispkg} - {'base'})


def _package(folder):
  return importlib.import_module(f'rnn_jax.{folder.replace("/", ".")}')


def _locate(folder, name, key):
  """The package of a folder that holds a file of that name, or InputError."""
  if name not in (known := names(folder)):
    raise errors.InputError(f'{key}={name!r}: choose one of {known}')
  return _package(folder).__name__
