"""The configuration: declared once, as frozen dataclasses, and parsed once.

A config file calls `default()`, changes what it wants, and returns the result;
a launcher hands that to `parse()`, which checks types and every rule that
spans fields. Behind `parse()` a value is an attribute, never a lookup.
"""

import dataclasses
import difflib
import importlib
import json
import math
import pkgutil
import types
import typing

import ml_collections

from rnn_jax import config_rules
from rnn_jax import errors
from rnn_jax.parallel import check as mesh_rules


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


@dataclasses.dataclass(frozen=True)
class Synthetic:
  """What sources 'recall', 'copying' and 'selective_copying' make."""

  pairs: int = 4  # keys with their values; of copying: letters
  distance: int = 16  # characters between them and the first question
  symbols: int = 8  # letters that they are drawn from, 26 at most
  examples: int = 20_000  # documents, of all splits
  seed: int = 0  # another one makes other documents


@dataclasses.dataclass(frozen=True)
class Data:
  """What is read and how it becomes batches."""

  source: str = 'python_stdlib'  # a file of rnn_jax/data/sources; 'tfds:NAME'
  data_dir: str = 'data'  # source 'tfds': where datasets are prepared
  path: str = ''  # a file or a glob; unused by sources that need none
  validation_path: str = ''  # held-out files; empty: split off `path`
  test_path: str = ''
  field: str = 'text'  # the column that holds the text, or a list of turns
  label: str = 'label'  # task 'classification': the column of the class
  classes: tuple[str, ...] = ()  # the classes by number, or by these names
  splits: tuple[int, ...] = (90, 5, 5)  # per cent: train, validation, test
  split_by: str = 'document'  # or 'position': the first 90 % of each document
  tokenizer: str = 'bytes'  # or 'characters', 'bpe'
  vocabulary: int = 512  # entries of a BPE vocabulary
  pre_tokenizer: str = 'byte_level'  # of BPE; or 'whitespace', which is lossy
  layout: str = 'buckets'  # or 'padded', 'sorted', 'packed', 'stream'
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


@dataclasses.dataclass(frozen=True)
class Model:
  """The stack around the cell. The cell's own options are section `cell`."""

  cell: str = 'simple_rnn'  # a file of rnn_jax/cells
  block: str = 'residual'  # or 'plain': cells alone, as published
  layers: int = 2
  width: int = 128
  embedding_width: int = 0  # 0: width; block 'plain' alone can differ
  mlp_width: int = 0  # 0: no MLP between cells
  mlp: str = 'swiglu'  # or 'geglu', 'gelu', 'relu'
  norm: str = 'rms'  # or 'layer', with scale and bias
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
  unroll: int = 1  # layers inlined in one turn of the scan over layers


@dataclasses.dataclass(frozen=True)
class Recurrence:
  """How the recurrence is computed: the same numbers, other costs."""

  impl: str = 'auto'  # 'scan'; 'chunked', 'associative', 'pallas' (GPU); of
  # cell 'attention': 'exact', 'blocked', 'cudnn' (GPU)
  chunk_length: int = 128  # the best on a CPU: docs/benchmarks.md


@dataclasses.dataclass(frozen=True)
class Remat:
  """Which states the backward pass finds kept; it computes the others again."""

  every: int | str = 0  # keep the state every K steps; 'sqrt'; 0: no remat
  segment: int = 0  # steps of the whole model at a time; 0: all of a row's
  layers: int = 0  # keep what enters every k-th layer; 0: all of each layer
  keep: tuple[str, ...] = ()  # inside layers, besides: see models/remat.py
  offload: bool = False  # what `keep` names lies in host memory


@dataclasses.dataclass(frozen=True)
class Optimizer:
  """How gradients, clipped by their global norm, change parameters."""

  name: str = 'adamw'  # a file of rnn_jax/training/optimizers
  learning_rate: float = 1e-3  # the peak; adafactor: relative, about 1e-2
  b1: float = 0.9  # of adamw
  b2: float = 0.99  # of adamw
  eps: float = 1e-8  # of adamw
  weight_decay: float = 0.01  # on kernels; not on embeddings, biases, gates
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


@dataclasses.dataclass(frozen=True)
class Train:
  """The run."""

  steps: int = 1000  # optimizer steps
  seed: int = 0
  precision: str = 'float32'  # tf32, bfloat16, bfloat16_operands, float16
  loss_scale: float = 32768.0  # at the start; of precision 'float16' alone
  loss_scale_steps: int = 2000  # good steps before it doubles
  quantized: str = ''  # or 'int8': matmuls of the forward pass
  compiler: str = 'default'  # options of XLA by name: training/compiler.py
  label_smoothing: float = 0.0  # share of the target spread over all tokens
  z_loss: float = 0.0  # times log^2 of the softmax's denominator
  accumulate: int = 1  # micro-batches a step; they divide the batch
  log_every: int = 20
  checkpoint_every: int = 200
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
  cell: typing.Any = None
  recurrence: Recurrence = Recurrence()
  remat: Remat = Remat()
  optimizer: Optimizer = Optimizer()
  schedule: Schedule = Schedule()
  train: Train = Train()
  mesh: Mesh = Mesh()
  evaluate: Evaluate = Evaluate()
  sample: Sample = Sample()


def default(cell='simple_rnn'):
  """Returns every key with its default, a locked ml_collections.ConfigDict."""
  defaults = Config(model=Model(cell=cell), cell=cell_options(cell)())
  return _to_config_dict(defaults)


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
  config = _build(Config, {**raw, 'cell': {}}, '')
  options = cell_options(config.model.cell)
  config = dataclasses.replace(
    config, cell=_build(options, raw.get('cell') or {}, 'cell.')
  )
  _locate('tasks', config.task.name, 'task.name')
  _locate('data/sources', config.data.source.partition(':')[0], 'data.source')
  _locate('training/optimizers', config.optimizer.name, 'optimizer.name')
  _locate('training/schedules', config.schedule.name, 'schedule.name')
  config_rules.check(config)
  mesh_rules.check(config)
  return dataclasses.replace(config, cell=config.cell.settle(config))


def to_dict(config):
  """Returns the config as plain, JSON-ready dicts."""
  return dataclasses.asdict(config)


def to_json(config):
  """Returns the config as indented JSON."""
  return json.dumps(to_dict(config), indent=2)


def differences(old, new):
  """Lists `key: old -> new` for each leaf in which two dicts differ."""
  lines = []
  for key in sorted(old.keys() | new.keys()):
    a, b = old.get(key, '(absent)'), new.get(key, '(absent)')
    if isinstance(a, dict) and isinstance(b, dict):
      lines += [f'{key}.{line}' for line in differences(a, b)]
    elif _plain(a) != _plain(b):
      lines.append(f'{key}: {a!r} -> {b!r}')
  return lines


def remat_length(every, length):
  """Steps between kept states for rows of `length` tokens; 0 for no remat."""
  return math.isqrt(length - 1) + 1 if every == 'sqrt' else every


def _plain(value):
  return list(value) if isinstance(value, tuple) else value


def _locate(folder, name, key):
  """The package of a folder that holds a file of that name, or InputError."""
  package = importlib.import_module(f'rnn_jax.{folder.replace("/", ".")}')
  modules = pkgutil.iter_modules(package.__path__)
  names = sorted(module.name for module in modules if not module.ispkg)
  if name not in names:
    raise errors.InputError(f'{key}={name!r}: choose one of {names}')
  return package.__name__


def _to_config_dict(section):
  out = ml_collections.ConfigDict()
  hints = typing.get_type_hints(type(section))
  for field in dataclasses.fields(section):
    value = getattr(section, field.name)
    if dataclasses.is_dataclass(value):
      out[field.name] = _to_config_dict(value)
    elif isinstance(hints[field.name], types.UnionType):
      out[field.name] = ml_collections.config_dict.placeholder(object)
      out[field.name] = value
    else:
      out[field.name] = value
  return out.lock()


def _build(cls, raw, prefix):
  hints = typing.get_type_hints(cls)
  if not isinstance(raw, (dict, ml_collections.ConfigDict)):
    raise errors.InputError(f'{prefix[:-1]}={raw!r}: give keys: {[*hints]}')
  for key in raw:
    if key not in hints:
      close = difflib.get_close_matches(key, hints, 1)
      remedy = f'did you mean {close[0]!r}?' if close else f'keys: {[*hints]}'
      raise errors.InputError(f'unknown config key {prefix}{key}: {remedy}')
  values = {}
  for key, value in raw.items():
    hint = hints[key]
    if dataclasses.is_dataclass(hint):
      values[key] = _build(hint, value, f'{prefix}{key}.')
    else:
      values[key] = _convert(hint, value, prefix + key)
  return cls(**values)


def _convert(hint, value, key):
  """Returns `value` as the type that `hint` declares, or raises."""
  if hint is typing.Any:
    return value
  if isinstance(hint, types.UnionType):
    kinds = typing.get_args(hint)
    if isinstance(value, str) and int in kinds and value.isdecimal():
      return int(value)
  elif typing.get_origin(hint) is tuple:
    if isinstance(value, (list, tuple)):
      inner = typing.get_args(hint)[0]
      return tuple(_convert(inner, item, key) for item in value)
    kinds = ()
  else:
    kinds = (hint,)
    if hint is float and type(value) is int:
      return float(value)
  if type(value) not in kinds:
    name = getattr(hint, '__name__', str(hint))
    raise errors.InputError(
      f'{key}={value!r} is of type {type(value).__name__}: give {name}'
    )
  if isinstance(value, float) and not math.isfinite(value):
    raise errors.InputError(f'{key}={value!r}: give a finite number')
  return value
