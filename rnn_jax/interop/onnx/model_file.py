"""A program as an ONNX model."""

from collections.abc import Mapping

import jax
import onnx

from rnn_jax import errors
from rnn_jax.interop.onnx import export_devices
from rnn_jax.interop.onnx import graph as graph_lib
from rnn_jax.interop.onnx import programs
from rnn_jax.interop.onnx import translation
from rnn_jax.interop.onnx import weights as weights_lib
from rnn_jax.version import __version__

OPSETS = 21, 27  # the first and the last that can be written
IR_VERSION = 10


def check_opset(opset: int | None) -> int:
  """Returns the opset to write, the last of OPSETS by default.

  Raises:
    InputError: it isn't from OPSETS.
  """
  first, last = OPSETS
  if opset is None:
    return last
  if not first <= opset <= last:
    errors.refuse('--opset', opset, f'give {first} to {last}')
  return opset


def build(
  program: programs.Program,
  weights: weights_lib.Weights,
  params: Mapping[str, jax.Array],
  metadata: Mapping[str, str],
  opset: int = OPSETS[-1],
) -> onnx.ModelProto:
  """Returns the model of a program; its weights are in a file of their own.

  Args:
    program: what is traced.
    weights: of the model.
    params: the same, as they are traced.
    metadata: of the file.
    opset: its version of ONNX's operators, from OPSETS.

  Raises:
    InputError: the model has an operation without an ONNX form.
  """
  traced, outputs = _trace(program, params, opset)
  graph = graph_lib.Graph()
  inputs = [
    graph_lib.info(name, x.shape, x.dtype) for name, x in program.inputs.items()
  ]
  first, x = next(iter(program.inputs.items()))
  for axis, size in enumerate(x.shape):
    if not graph_lib.is_static(size):
      graph.define_dim(str(size), first, axis)
  context = translation.Context(graph)
  results = context.run(
    traced.jaxpr,
    traced.consts,
    _arguments(context, traced.jaxpr, weights, params, program.inputs),
  )
  infos = []
  names = [*_leaves(outputs)]
  for name, value in zip(names, results, strict=True):
    made = onnx.helper.make_node('Identity', [graph.whole(value)], [name])
    graph.nodes.append(made)
    infos.append(graph_lib.info(name, value.shape, value.dtype))
  # The declared order, rather than that of jax's dicts.
  infos.sort(key=lambda info: [*outputs].index(info.name))
  model = onnx.helper.make_model(
    graph.build(program.name, inputs, infos),
    opset_imports=[onnx.helper.make_opsetid('', opset)],
    ir_version=IR_VERSION,
    producer_name='rnn_jax',
    producer_version=__version__,
  )
  onnx.helper.set_model_props(model, dict(metadata))
  return model


def _trace(program, params, opset):
  """Returns (a jaxpr, the shapes of its outputs by name)."""
  trace = jax.make_jaxpr(program.run, return_shape=True)
  try:
    with export_devices.use(program.name == 'step', opset):
      return trace(dict(params), program.inputs)
  except jax.errors.InconclusiveDimensionOperation as error:
    reason = str(error).partition('\n')[0]
    raise errors.InputError(
      f'--format=onnx: {program.name}.onnx has rows of any number and length, '
      f'and a part of the model needs these ({reason}): use '
      '--format=stablehlo'
    ) from error


def _arguments(context, jaxpr, weights, params, inputs):
  """Returns the values of a traced program's inputs."""
  used = {id(x) for equation in jaxpr.eqns for x in equation.invars}

  def stored(name, variable):
    # Others aren't tensors of this graph: a head that another task has.
    is_read = name in params and id(variable) in used
    return weights.read(context.graph, name) if is_read else name

  names = [*_leaves(params), *_leaves(inputs)]
  return [
    context.value(stored(name, variable), variable.aval)
    for name, variable in zip(names, jaxpr.invars, strict=True)
  ]


def _leaves(arrays):
  """Returns names in the order in which jax flattens a dict of arrays."""
  leaves = jax.tree_util.tree_leaves_with_path(dict(arrays))
  return [path[0].key for path, _ in leaves]
