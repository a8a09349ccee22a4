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
import types
import typing

import ml_collections

from rnn_jax import errors


@dataclasses.dataclass(frozen=True)
class Data:
  """What is read and how it becomes batches."""

  source: str = 'python_stdlib'  # a file of rnn_jax/data/sources
  path: str = ''  # a file or a glob; unused by sources that need none
  validation_path: str = ''  # held-out files; empty: split off `path`
  test_path: str = ''
  field: str = 'text'  # the field of a JSONL row that holds the text
  splits: tuple[int, ...] = (90, 5, 5)  # per cent: train, validation, test
  split_by: str = 'document'  # or 'position': the first 90 % of each document
  tokenizer: str = 'bytes'  # or 'characters', 'bpe'
  vocabulary: int = 512  # entries of a BPE vocabulary
  pre_tokenizer: str = 'byte_level'  # of BPE; or 'whitespace', which is lossy
  layout: str = 'buckets'  # or 'packed', 'stream'
  length: int = 256  # tokens of the longest row
  boundaries: tuple[int, ...] = ()  # bucket lengths; empty: from quantiles
  buckets: int = 4  # how many, when they come from quantiles
  batch_size: int = 32  # rows
  tokens_per_batch: int = 0  # above 0: rows = tokens_per_batch // length
  carry_state: bool = False  # layout 'stream': keep the state between windows
  stretch: int = 16384  # layout 'stream': bytes that one row reads in a line
  workers: int = 1  # processes that read and tokenize; 0: this process
  prefetch: int = 2  # batches made ahead


@dataclasses.dataclass(frozen=True)
class Model:
  """The stack around the cell. The cell's own options are section `cell`."""

  cell: str = 'simple_rnn'  # a file of rnn_jax/cells
  block: str = 'residual'  # or 'plain': cells alone, as published
  layers: int = 2
  width: int = 128
  embedding_width: int = 0  # 0: width; block 'plain' alone can differ
  mlp_width: int = 0  # 0: no MLP between cells
  dropout: float = 0.0
  tied: bool = False  # the head is the transposed embedding
  unroll: int = 1  # layers inlined in one turn of the scan over layers


@dataclasses.dataclass(frozen=True)
class Recurrence:
  """How the recurrence is computed: the same numbers, other costs."""

  impl: str = 'auto'  # 'scan', 'chunked', 'associative' or 'auto'
  chunk_length: int = 64


@dataclasses.dataclass(frozen=True)
class Remat:
  """Which states the backward pass finds kept; it computes the others again."""

  every: int | str = 0  # keep the state every K steps; 'sqrt'; 0: no remat


@dataclasses.dataclass(frozen=True)
class Optimizer:
  """AdamW behind a clip by global norm."""

  learning_rate: float = 1e-3  # the peak
  b1: float = 0.9
  b2: float = 0.99
  eps: float = 1e-8
  weight_decay: float = 0.01  # on matrices; not on biases, norms and gates
  clip_norm: float = 1.0  # 0: no clipping


@dataclasses.dataclass(frozen=True)
class Schedule:
  """Linear warm-up, then a cosine."""

  warmup_steps: int = 100
  final_learning_rate: float = 1e-4  # at the last step


@dataclasses.dataclass(frozen=True)
class Train:
  """The run."""

  steps: int = 1000  # optimizer steps
  seed: int = 0
  precision: str = 'float32'  # or 'bfloat16', 'bfloat16_operands'
  accumulate: int = 1  # micro-batches a step; they divide the batch
  log_every: int = 20
  checkpoint_every: int = 200
  keep_checkpoints: int = 2  # the newest ones; the best is kept besides
  max_skipped_steps: int = 10  # non-finite steps in a row before the run stops


@dataclasses.dataclass(frozen=True)
class Evaluate:
  """Evaluation on the whole held-out split while training."""

  every: int = 200  # steps; 0: at the end alone
  batch_size: int = 32
  length: int = 0  # tokens a row; 0: data.length
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

  data: Data = Data()
  model: Model = Model()
  cell: typing.Any = None
  recurrence: Recurrence = Recurrence()
  remat: Remat = Remat()
  optimizer: Optimizer = Optimizer()
  schedule: Schedule = Schedule()
  train: Train = Train()
  evaluate: Evaluate = Evaluate()
  sample: Sample = Sample()
  task: str = 'language_modeling'  # a file of rnn_jax/tasks


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
  package = importlib.import_module(f'rnn_jax.{folder.replace("/", ".")}')
  names = sorted(_module_names(package))
  if name not in names:
    raise errors.InputError(f'{key}={name!r}: choose one of {names}')
  return importlib.import_module(f'{package.__name__}.{name}')


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
  _check(config)
  return config


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


def _module_names(package):
  import pkgutil

  return {
    module.name
    for module in pkgutil.iter_modules(package.__path__)
    if not module.ispkg
  }


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


CHOICES = {
  'data.split_by': ('document', 'position'),
  'data.tokenizer': ('bytes', 'characters', 'bpe'),
  'data.pre_tokenizer': ('byte_level', 'whitespace'),
  'data.layout': ('buckets', 'packed', 'stream'),
  'model.block': ('residual', 'plain'),
  'recurrence.impl': ('auto', 'scan', 'chunked', 'associative'),
  'train.precision': ('float32', 'bfloat16', 'bfloat16_operands'),
}
AT_LEAST = {
  'data.length': 1,
  'data.buckets': 1,
  'data.batch_size': 1,
  'data.tokens_per_batch': 0,
  'data.stretch': 1,
  'data.workers': 0,
  'data.prefetch': 0,
  'model.layers': 1,
  'model.width': 1,
  'model.embedding_width': 0,
  'model.mlp_width': 0,
  'model.unroll': 1,
  'recurrence.chunk_length': 1,
  'schedule.warmup_steps': 0,
  'train.steps': 1,
  'train.seed': 0,
  'train.accumulate': 1,
  'train.log_every': 1,
  'train.checkpoint_every': 1,
  'train.keep_checkpoints': 1,
  'train.max_skipped_steps': 1,
  'evaluate.every': 0,
  'evaluate.batch_size': 1,
  'evaluate.length': 0,
  'evaluate.patience': 0,
  'optimizer.learning_rate': 0,
  'optimizer.eps': 0,
  'optimizer.weight_decay': 0,
  'optimizer.clip_norm': 0,
  'schedule.final_learning_rate': 0,
  'sample.new_tokens': 0,
  'sample.temperature': 0,
  'sample.top_k': 0,
}
BELOW_ONE = ('model.dropout', 'optimizer.b1', 'optimizer.b2')


def _value(config, key):
  section, _, name = key.partition('.')
  return getattr(getattr(config, section), name)


def _refuse(key, value, remedy):
  raise errors.InputError(f'{key}={value!r}: {remedy}')


def _check(config):
  for key, choices in CHOICES.items():
    if (value := _value(config, key)) not in choices:
      _refuse(key, value, f'choose one of {choices}')
  for key, least in AT_LEAST.items():
    if (value := _value(config, key)) < least:
      _refuse(key, value, f'give {least} or more')
  for key in BELOW_ONE:
    if not 0 <= (value := _value(config, key)) < 1:
      _refuse(key, value, 'give a number in [0, 1)')
  _check_data(config)
  _check_model(config)
  _check_remat(config)
  config.cell.check(config)


def _check_data(config):
  data = config.data
  if len(data.splits) != 3 or sum(data.splits) != 100 or min(data.splits) < 0:
    _refuse('data.splits', data.splits, 'give three percentages with sum 100')
  if data.splits[0] == 0:
    _refuse('data.splits', data.splits, 'leave something to train on')
  if list(data.boundaries) != sorted(set(data.boundaries)):
    _refuse('data.boundaries', data.boundaries, 'give rising lengths')
  if data.boundaries and data.boundaries[0] < 1:
    _refuse('data.boundaries', data.boundaries, 'give lengths above 0')
  if data.boundaries and data.boundaries[-1] != data.length:
    _refuse(
      'data.boundaries',
      data.boundaries,
      f'end with data.length={data.length}, the longest row',
    )
  if data.carry_state and data.layout != 'stream':
    _refuse('data.carry_state', True, "it needs data.layout='stream'")
  if 0 < data.tokens_per_batch < data.length * config.train.accumulate:
    _refuse(
      'data.tokens_per_batch',
      data.tokens_per_batch,
      f'give data.length * train.accumulate = '
      f'{data.length * config.train.accumulate} or more',
    )
  if not data.tokens_per_batch and data.batch_size % config.train.accumulate:
    _refuse(
      'train.accumulate',
      config.train.accumulate,
      f'it must divide data.batch_size={data.batch_size}',
    )


def _check_model(config):
  model = config.model
  inner = model.embedding_width or model.width
  if inner != model.width and model.block != 'plain':
    _refuse(
      'model.embedding_width',
      inner,
      f'a residual block needs model.width={model.width} (or 0)',
    )
  if inner != model.width and model.tied:
    _refuse('model.tied', True, 'a tied head needs embedding_width = width')
  if model.block == 'plain' and model.mlp_width:
    _refuse('model.mlp_width', model.mlp_width, "block 'plain' has no MLP")
  if config.schedule.warmup_steps > config.train.steps:
    _refuse(
      'schedule.warmup_steps',
      config.schedule.warmup_steps,
      f'give at most train.steps={config.train.steps}',
    )


def _check_remat(config):
  every, recurrence = config.remat.every, config.recurrence
  if isinstance(every, str) and every != 'sqrt':
    _refuse('remat.every', every, "give a number of steps or 'sqrt'")
  if not isinstance(every, str) and every < 0:
    _refuse('remat.every', every, 'give 0 or more')
  if every and recurrence.impl == 'associative':
    _refuse('remat.every', every, "recurrence.impl 'associative' keeps all")
