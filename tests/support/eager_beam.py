"""Enough of Apache Beam to run a pipeline without it, as a harsh runner would.

Each step gets its elements in random order and as copies, and so are its
function's arguments: what a call changes in them doesn't reach the next call.
"""

import pickle
import random
import types

RANDOM = random.Random(0)


class Step:
  """A transform: from the elements before it to those that follow."""

  def __init__(self, run):
    self._run = run

  def __rrshift__(self, label):
    assert isinstance(label, str)
    return self

  def __ror__(self, elements):
    elements = [] if isinstance(elements, Pipeline) else [*elements]
    RANDOM.shuffle(elements)
    return self._run(elements)


class Options(list):
  def get_all_options(self):
    return {}


class Pipeline:
  """Its steps run as they are added."""

  def __init__(self, runner, options):
    self.arguments = runner, options

  def run(self):
    return self

  def wait_until_finish(self):
    pass


def _map(function, *arguments):
  called = pickle.dumps((function, arguments))

  def run(elements):
    for element in elements:
      copy, values = pickle.loads(called)
      yield copy(pickle.loads(pickle.dumps(element)), *values)

  return Step(run)


def _flat_map(function, *arguments):
  each = _map(function, *arguments)
  return Step(lambda elements: [x for some in elements | each for x in some])


def _grouped(elements):
  groups = {}
  for key, value in elements:
    groups.setdefault(key, []).append(value)
  return [*groups.items()]


def modules():
  """Returns the modules to put into sys.modules, by name."""
  beam = types.ModuleType('apache_beam')
  beam.options = types.ModuleType('apache_beam.options')
  flags = types.ModuleType('apache_beam.options.pipeline_options')
  flags.PipelineOptions = Options
  beam.options.pipeline_options = flags
  beam.Pipeline = Pipeline
  beam.Create = lambda values: Step(lambda _: [*values])
  beam.Reshuffle = lambda: Step(lambda elements: elements)
  beam.Map = lambda *arguments: Step(
    lambda elements: [*(elements | _map(*arguments))]
  )
  beam.FlatMap = _flat_map
  beam.GroupByKey = lambda: Step(_grouped)
  beam.CombinePerKey = lambda function: Step(
    lambda elements: [(k, function(v)) for k, v in _grouped(elements)]
  )
  beam.combiners = types.SimpleNamespace(
    ToDict=lambda: Step(lambda elements: [dict(elements)])
  )
  return {m.__name__: m for m in (beam, beam.options, flags)}
