"""What Prometheus reads at /metrics.

Counts of requests and their seconds are kept here; those of the engine are read
from it when they are asked for.
"""

from collections.abc import Callable
from collections.abc import Iterator

import prometheus_client
from prometheus_client import core
from prometheus_client import registry

from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving import streams as streams_lib

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST


class Metrics:
  """The counts of one server."""

  def __init__(
    self,
    stats: Callable[[], engine_lib.Stats | None],
    streams: Callable[[], streams_lib.Stats | None] = lambda: None,
  ) -> None:
    """Takes what returns statistics: of the engine and of streams, or None."""
    self._registry = prometheus_client.CollectorRegistry()
    own = self._registry
    self.requests = prometheus_client.Counter(
      'rnn_jax_requests', 'Answers.', ['route', 'status'], registry=own
    )
    self.seconds = prometheus_client.Histogram(
      'rnn_jax_request_seconds',
      'Seconds from a request to the end of its answer.',
      ['route'],
      buckets=SECONDS,
      registry=own,
    )
    self.first_token = prometheus_client.Histogram(
      'rnn_jax_first_token_seconds',
      'Seconds from a request to its first token.',
      buckets=SECONDS,
      registry=own,
    )
    self.between_tokens = prometheus_client.Histogram(
      'rnn_jax_token_seconds',
      'Seconds per token of a request after its first.',
      buckets=[x / 100 for x in SECONDS],
      registry=own,
    )
    self.open = prometheus_client.Gauge(
      'rnn_jax_open_requests', 'Requests that are being answered.', registry=own
    )
    self.cut = prometheus_client.Counter(
      'rnn_jax_disconnects',
      'Requests that clients cut off.',
      registry=own,
    )
    self._registry.register(_OfEngine(stats))
    self._registry.register(_OfStreams(streams))

  def text(self) -> bytes:
    """Returns all metrics in Prometheus's format."""
    return prometheus_client.generate_latest(self._registry)


class _OfEngine(registry.Collector):
  """Reads the engine's statistics."""

  def __init__(self, stats):
    self._stats = stats

  def collect(self) -> Iterator[core.Metric]:
    stats = self._stats()
    if stats is None:
      return
    prefixes = stats.prefixes
    for name, text, value in (
      ('slots', 'Rows that can make tokens together.', stats.slots),
      ('active_slots', 'Rows that make tokens now.', stats.active),
      ('queued', 'Requests that wait for a slot.', stats.queued),
      ('prefix_states', 'Stored states of prefixes.', prefixes.entries),
      ('prefix_bytes', 'Their bytes.', prefixes.nbytes),
      ('programs', 'Compiled programs.', stats.compiled),
    ):
      yield core.GaugeMetricFamily(f'rnn_jax_{name}', text, value)
    for name, text, value in (
      ('submitted', 'Requests to the engine.', stats.requests),
      ('prompt_tokens', 'Tokens of prompts.', stats.prompt_tokens),
      ('read_tokens', 'Tokens read, without those cached.', stats.read_tokens),
      ('new_tokens', 'Tokens made.', stats.new_tokens),
      ('decode_steps', 'Steps over all slots.', stats.steps),
      ('draft_tokens', 'Tokens of a row where rows draft.', stats.draft_tokens),
      ('draft_runs', 'Runs of the model for them.', stats.draft_runs),
      ('prefix_hits', 'Texts with a stored beginning.', prefixes.hits),
      ('prefix_misses', 'Texts without one.', prefixes.misses),
      ('prefix_evictions', 'Stored states removed.', prefixes.evictions),
    ):
      yield core.CounterMetricFamily(f'rnn_jax_{name}', text, value)
    ended = core.CounterMetricFamily(
      'rnn_jax_completions', 'Completions by why they ended.', labels=['reason']
    )
    for reason, count in sorted(stats.ended.items()):
      ended.add_metric([reason], count)
    yield ended


class _OfStreams(registry.Collector):
  """Reads the statistics of streams of series."""

  def __init__(self, stats):
    self._stats = stats

  def collect(self) -> Iterator[core.Metric]:
    stats = self._stats()
    if stats is None:
      return
    for name, text, value in (
      ('streams', 'Streams that are served.', stats.streams),
      ('queued', 'Requests that wait for a tick.', stats.queued),
    ):
      yield core.GaugeMetricFamily(f'rnn_jax_{name}', text, value)
    for name, text, value in (
      ('stream_readings', 'Readings of streams.', stats.readings),
      ('stream_ticks', 'Calls that read them.', stats.ticks),
    ):
      yield core.CounterMetricFamily(f'rnn_jax_{name}', text, value)
