"""A server as most people write a first one: FastAPI around a PyTorch model.

  python -m benchmarks.workloads.serving.plain_server --model=FILE \\
      --heads=4 --threads=1

One process. A handler runs the loop over new tokens in a thread, under a lock:
one text at a time, each with the whole machine, without streams.
"""

import argparse
import asyncio
import socket

import fastapi
import pydantic
import torch
import uvicorn

from benchmarks.workloads import torch_residual


class Form(pydantic.BaseModel):
  """A request: tokens to continue, greedily."""

  prompt: list[int] = pydantic.Field(min_length=1)
  max_tokens: int = pydantic.Field(16, ge=1)


def make(network: torch_residual.LanguageModel) -> fastapi.FastAPI:
  """Returns the application."""
  app = fastapi.FastAPI()
  lock = asyncio.Lock()

  @app.post('/v1/completions')
  async def complete(form: Form) -> dict:
    async with lock:
      ids = await asyncio.to_thread(
        torch_residual.generate, network, form.prompt, form.max_tokens
      )
    text = bytes(n for n in ids if n < 256).decode('utf-8', 'replace')
    return {
      'choices': [{'text': text, 'finish_reason': 'length'}],
      'usage': {
        'prompt_tokens': len(form.prompt),
        'completion_tokens': len(ids),
      },
    }

  return app


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--model', required=True)
  parser.add_argument('--heads', type=int, required=True)
  parser.add_argument('--threads', type=int, required=True)
  options = parser.parse_args()
  torch.set_num_threads(options.threads)
  app = make(torch_residual.load(options.model, options.heads))
  listening = socket.create_server(('127.0.0.1', 0))
  host, port = listening.getsockname()
  print(f'the model is ready at http://{host}:{port}/', flush=True)
  config = uvicorn.Config(app, log_level='warning')
  uvicorn.Server(config).run(sockets=[listening])


if __name__ == '__main__':
  main()
