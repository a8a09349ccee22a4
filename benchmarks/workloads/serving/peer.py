"""Our server beside a plain one in PyTorch, with the same weights.

Both run at once, and rounds of the two take turns; a server without requests
takes no time. Both write greedily; `plain_server` says what the other one is,
which computes in float32.
"""

import pathlib
import tempfile

import fastapi  # noqa: F401, without it the row says what is missing
import numpy as np
import torch

from benchmarks.harness import measure
from benchmarks.workloads import torch_residual
from benchmarks.workloads.serving import model as model_lib
from benchmarks.workloads.serving import over_http
from benchmarks.workloads.serving import server as server_lib
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.interop import request
from rnn_jax.interop.formats import safetensors
from rnn_jax.runs import bundle as bundle_lib

CHECKED = 4  # prompts that both must continue with the same tokens


def rate(
  repeats: int,
  clients: int,
  requests: int,
  prompt: int = 64,
  new_tokens: int = 128,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """Seconds of both servers for the same load; arguments as over_http.rate.

  Raises:
    RuntimeError: the two write different texts.
  """
  bundle = model_lib.make(overrides)
  heads = bundle.config.cell.heads
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    path = folder / 'model.safetensors'
    bundle_lib.write(bundle, folder / 'run')
    safetensors.write(bundle, request.Target(path))
    source = generate.Generator.from_bundle(bundle)
    network = torch_residual.load(path, heads)
    _check_same(source, network, prompt, new_tokens)
    threads = _best_threads(network, prompt, new_tokens)
    load = over_http.Load(clients, requests, prompt, new_tokens, temperature=0)
    with (
      server_lib.serving(
        folder / 'run', folder / 'programs', '--slots=64'
      ) as ours,
      server_lib.started(
        folder / 'stderr',
        'benchmarks.workloads.serving.plain_server',
        f'--model={path}',
        f'--heads={heads}',
        f'--threads={threads}',
      ) as plain,
    ):
      servers = {'ours': ours.port, 'plain': plain.port}
      seconds: dict[str, list[float]] = {kind: [] for kind in servers}
      for _ in range(repeats + 1):
        for kind, port in servers.items():
          took = measure.seconds(lambda port=port: load.send(port))
          seconds[kind].append(took)
  values = measure.summarize(seconds['ours'][1:])
  other = measure.summarize(seconds['plain'][1:])
  return (
    model_lib.facts(source)
    | values
    | {
      'clients': clients,
      'tokens_per_second': load.tokens / values['median'],
      'plain': other,
      'plain_threads': threads,
      'plain_tokens_per_second': load.tokens / other['median'],
      'ratio': other['median'] / values['median'],
    }
  )


def _check_same(source, network, prompt, new_tokens):
  """Raises RuntimeError unless both continue prompts with the same tokens."""
  rng = np.random.default_rng(1)
  prompts = [model_lib.prompt(rng, prompt) for _ in range(CHECKED)]
  options = generate.Options(
    max_new_tokens=new_tokens,
    sampling=sampling.Sampling(0.0),
    stop_at_boundary=False,
  )
  texts = source.generate(prompts, options).completions
  for ids, text in zip(prompts, texts, strict=True):
    other = torch_residual.generate(network, ids.tolist(), new_tokens)
    if list(text.tokens) != other:
      raise RuntimeError(
        f'PyTorch writes other tokens than ours: {other}, not {text.tokens}'
      )


def _best_threads(network, prompt, new_tokens):
  """Returns how many threads write a text fastest: one, or one per core."""
  seconds = {}
  for threads in (1, measure.cores()):
    torch.set_num_threads(threads)
    values = measure.repeat(
      lambda: torch_residual.generate(network, [0] * prompt, new_tokens), 3
    )
    seconds[threads] = values['min']
  return min(seconds, key=lambda threads: seconds[threads])
