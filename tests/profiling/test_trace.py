"""Traces of both forms: a GPU's streams, and threads of a CPU."""

import itertools

import jax
import jax.numpy as jnp

from rnn_jax.profiling import hlo
from rnn_jax.profiling import trace

NAMES = ('hlo_op', 'hlo_module', '_p', '_c')


def plane(name, lines):
  """An XPlane as text: lines {name: [(event, start, length, stats)]}, in ns."""
  ids = itertools.count(1)
  metadata, body = '', ''
  for line, events in lines.items():
    body += f' lines {{ name: "{line}"'
    for event, start, length, stats in events:
      n = next(ids)
      metadata += (
        f' event_metadata {{ key: {n} value {{ id: {n} name: "{event}" }} }}'
      )
      body += (
        f' events {{ metadata_id: {n} offset_ps: {start * 1000}'
        f' duration_ps: {length * 1000}'
      )
      for key, value in stats.items():
        kind = 'str_value' if isinstance(value, str) else 'int64_value'
        shown = f'"{value}"' if isinstance(value, str) else value
        body += (
          f' stats {{ metadata_id: {NAMES.index(key) + 1} {kind}: {shown} }}'
        )
      body += ' }'
    body += ' }'
  for n, key in enumerate(NAMES, 1):
    metadata += (
      f' stat_metadata {{ key: {n} value {{ id: {n} name: "{key}" }} }}'
    )
  return f'planes {{ name: "{name}"{body}{metadata} }}'


def write(path, *planes):
  kind = jax.profiler.ProfileData
  path.write_bytes(kind.text_proto_to_serialized_xspace('\n'.join(planes)))
  return path


def test_threads_of_a_cpu(tmp_path):
  def op(name, number, module='jit_step'):
    return {'hlo_op': name, 'hlo_module': module, '_p': number}

  lines = {
    'tf_XLAEigen/1': [
      ('dot.1', 100, 50, op('dot.1', 1)),
      ('other', 100, 50, op('other', 2, 'jit_init')),
      ('ThunkExecutor::Execute', 90, 500, {}),
      ('end: add.1', 400, 1, {'_c': 3}),
    ],
    'tf_XLAEigen/2': [
      ('add.1', 200, 20, op('add.1', 3)),
      ('end: dot.1', 150, 1, {'_c': 1}),
    ],
  }
  path = write(tmp_path / 'a.xplane.pb', plane('/host:CPU', lines))
  assert trace.read(path, 'jit_step') == [
    trace.Event('dot.1', 100, 150),
    trace.Event('add.1', 200, 400),
  ]


def test_streams_of_a_gpu(tmp_path):
  op = {'hlo_op': 'gemm.1', 'hlo_module': 'jit_step'}
  device = {
    'Stream #13(Compute)': [
      ('sm90_xmma_gemm', 10, 5, op),
      ('loop_kernel', 20, 5, {}),
      ('loop_fusion_1', 30, 5, op | {'hlo_op': 'command_buffer_1'}),
    ],
    'Stream #14(MemcpyH2D)': [('MemcpyH2D', 12, 8, {})],
    'XLA Modules': [('jit_step', 0, 100, {})],
  }
  host = {'python': [('gemm.1', 0, 3, op)]}
  path = write(
    tmp_path / 'a.xplane.pb',
    plane('/host:CPU', host),
    plane('/device:GPU:0', device),
  )
  assert trace.read(path, 'jit_step') == [
    trace.Event('gemm.1', 10, 15),
    trace.Event('MemcpyH2D', 12, 20),
    trace.Event('loop_kernel', 20, 25),
    trace.Event('loop_fusion_1', 30, 35),
  ]


def test_busy_counts_what_overlaps_once():
  spans = [(0, 10), (5, 12), (6, 7), (20, 30), (30, 31), (25, 26)]
  assert trace.busy([trace.Event('x', *span) for span in spans]) == 12 + 11
  assert trace.busy([]) == 0


def test_sums_count_every_time():
  events = [trace.Event('x', 0, 3), trace.Event('y', 0, 5)]
  events.append(trace.Event('x', 10, 13))
  result = trace.sums((event.name, event) for event in events)
  assert result == [trace.Sum('x', 6, 2), trace.Sum('y', 5, 1)]


def test_a_trace_of_a_program_names_its_operations(tmp_path):
  program = jax.jit(lambda x: jnp.tanh(jnp.sort(x @ x)) @ x)
  x = jnp.ones((256, 256))
  program = program.lower(x).compile()
  program(x).block_until_ready()
  with jax.profiler.trace(tmp_path):
    for _ in range(3):
      program(x).block_until_ready()
  read = hlo.Program(program.as_text())
  events = trace.read(trace.newest(tmp_path), read.name)
  times = {s.name: s.times for s in trace.sums((e.name, e) for e in events)}
  assert times.keys() <= read.operations.keys()
  dots = [n for n in times if read.operations[n].path.endswith('dot_general')]
  assert len(dots) == 2
  assert {times[name] for name in dots} == {3}
  assert trace.busy(events) <= sum(e.end - e.start for e in events)
