"""Fine-tuning of another run's model by adapters, on messages or on texts.

  python -m launch.convert --input=FOLDER --format=hf --workdir=runs/base
  python -m launch.train --config=configs/finetune.py --workdir=runs/tuned \\
      --init_from=runs/base --init_model --config.data.path=messages.jsonl
  python -m launch.generate --chat --workdir=runs/tuned

A row of messages.jsonl is {"messages": [{"role": "user", "content": "Hi"},
{"role": "assistant", "content": "Hello."}]}, or has a list of texts, "turns";
the replies are learned. --config=finetune:texts learns texts as they are:
files, or the column "text" of rows with --config.data.source=jsonl. Without
data.path they are those of samples/.

--init_model takes the sections model and cell of the run, and its kind of
tokenizer; flags change them: --config.model.dropout=0.1. All parameters are
trained with --config.adapters.rank=0, and should have a smaller rate:
--config.optimizer.learning_rate=2e-5. --config.train.steps=0
--config.train.epochs=3 reads the rows three times.
"""

import pathlib

from rnn_jax import config as config_lib

SAMPLES = pathlib.Path(__file__).parent / 'samples'  # wherever it is installed
FORMS = 'messages', 'texts'


def get_config(form='messages'):
  """Returns the config for one of FORMS; set data.path to your files."""
  if form not in FORMS:
    raise ValueError(f'finetune.py:{form}: choose one of {FORMS}')
  config = config_lib.default(layout='packed')

  if form == 'messages':
    config.task.name = 'dialogue'
    config.data.source = 'jsonl'
    config.data.path = str(SAMPLES / 'dialogues.jsonl')
  else:
    config.data.source = 'text'
    config.data.path = str(SAMPLES / 'story_*.txt')
    config.data.split_by = 'position'
  config.data.length = 512
  config.data.batch_size = 8
  config.data.workers = 0

  config.adapters.rank = 8
  config.optimizer.learning_rate = 5e-4
  config.optimizer.weight_decay = 0.0
  config.schedule.warmup_steps = 10
  config.schedule.final_learning_rate = 5e-5

  config.train.steps = 200
  config.train.log_every = 10
  config.train.checkpoint_every = 100
  config.evaluate.every = 50
  config.evaluate.batch_size = 8
  config.sample.new_tokens = 50
  return config
