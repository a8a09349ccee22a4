"""How far back the gradient of a loss reaches, untrained and trained.

  python -m launch.experiments --grid=gradient_flow --workdir=runs/flow

`flow.N` is the root mean square of |d loss_T / d x_t| over delays T - t from N
to 2 N, by launch.inspect on held-out text. The models are those of
configs/recall.py as byte models of Python's standard library. 'initial' takes a
step too small to change a float32. 4 minutes on 2 cores.
"""

from rnn_jax.experiments import grid

STEPS = 300
LENGTH = 512
SHARED = {
  'task.name': 'language_modeling',
  'data.source': 'python_stdlib',
  'data.tokenizer': 'bytes',
  'data.layout': 'stream',
  'data.length': LENGTH,
  'data.batch_size': 8,
  'data.splits': (98, 1, 1),
}
TRAINED = {
  'train.steps': STEPS,
  'train.checkpoint_every': STEPS,
  'evaluate.every': STEPS,
}
INITIAL = {
  'train.steps': 1,
  'train.checkpoint_every': 1,
  'evaluate.every': 1,
  'schedule.warmup_steps': 1,
  'optimizer.learning_rate': 1e-30,
  'schedule.final_learning_rate': 0.0,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Gradient flow through time',
    config='configs/recall.py',
    variants={
      f'{model}-{name}': {'config': f'configs/recall.py:{model}', **SHARED}
      | steps
      for name, steps in (('initial', INITIAL), ('trained', TRAINED))
      for model in ('simple_rnn', 'simple', 'coupled')
    },
    metrics=(
      *((f'flow.{n}', 'higher', f'from {n}') for n in _octaves()),
      ('loss', 'lower', 'nats per byte'),
    ),
    commands=('train', 'evaluate', 'inspect'),
    seeds=(0,),
  )


def _octaves():
  delay = 1
  while delay < LENGTH:
    yield delay
    delay *= 2
