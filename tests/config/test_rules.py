"""Each rule of a config refuses what breaks it, by name and with a remedy."""

import re

import pytest

from tests.config import test_config

CLASSES = {'task__name': 'classification', 'data__classes': ('no', 'yes')}


@pytest.mark.parametrize(
  'task',
  (
    {'task__name': 'recall'},
    {'task__name': 'dialogue'},
    CLASSES,
  ),
  ids=str,
)
def test_whole_examples_are_not_split_by_position(task):
  raw = test_config.changed(**task, data__split_by='position')
  assert test_config.refusal(raw) == (
    f"data.split_by='position': task.name={task['task__name']!r} has whole "
    "examples, which would be in every split: give 'document'"
  )


@pytest.mark.parametrize(
  ('change', 'message'),
  (
    ({'data__splits': (90, 5, 4)}, 'three percentages with sum 100'),
    ({'data__splits': (90, 10)}, 'three percentages with sum 100'),
    ({'data__splits': (110, -5, -5)}, 'three percentages with sum 100'),
    ({'data__splits': (0, 50, 50)}, 'leave something to train on'),
    ({'data__boundaries': (64, 32, 256)}, 'give ascending lengths'),
    ({'data__boundaries': (64, 64, 256)}, 'give ascending lengths'),
    ({'data__boundaries': (0, 256)}, 'give lengths above 0'),
    ({'data__boundaries': (64, 128)}, 'end with data.length=256'),
    (
      {'data__carry_state': True},
      "data.layout='buckets' has no such key: .* choose one of .'stream'.",
    ),
    (
      {'data__rarity_buckets': 2, 'data__feature_buckets': 3},
      'data.feature_buckets=3: data.rarity_buckets=2 splits buckets too',
    ),
    (
      {'data__layout': 'packed', 'data__rarity_buckets': 2},
      "data.rarity_buckets=2: data.layout='packed' has no such key",
    ),
    (
      {'data__length_schedule': (128, 64)},
      'rising lengths between 0 and .*=256',
    ),
    (
      {'data__length_schedule': (64, 256)},
      'rising lengths between 0 and .*=256',
    ),
    ({'data__length_schedule': (0, 64)}, 'rising lengths between 0 and .*=256'),
    (
      {
        'data__length_schedule': (64,),
        'data__layout': 'stream',
        'data__carry_state': True,
        'data__tokens_per_batch': 512,
      },
      'data.tokens_per_batch=512: it changes the number of rows',
    ),
    (
      {'data__curriculum': 'length', 'data__curriculum_shares': ()},
      'give percentages from 1 to 99',
    ),
    (
      {'data__curriculum': 'length', 'data__curriculum_shares': (80, 100)},
      'percentages from 1 to 99',
    ),
    (
      {'data__curriculum': 'length', 'data__curriculum_shares': (80, 0)},
      'percentages from 1 to 99',
    ),
    ({'data__tokens_per_batch': 255}, 'train.accumulate = 256 or more'),
    ({'train__steps': 0}, 'train.steps=0: give 1 or more, or train.epochs'),
    ({'data__stride': 257}, 'data.stride=257: .* up to data.length=256, or 0'),
    (
      {'train__accumulate': 2, 'data__tokens_per_batch': 300},
      'data.tokens_per_batch=300.*train.accumulate = 512 or more',
    ),
    ({'train__accumulate': 5}, 'train.accumulate=5: it must divide .*=32'),
    ({'model__embedding_width': 64}, 'needs model.width=128'),
    (
      {
        'model__embedding_width': 64,
        'model__block': 'plain',
        'model__tied': True,
      },
      'model.tied=True: a tied head needs embedding_width = width',
    ),
    (
      {'model__bidirectional': True},
      "model.bidirectional=True: task.name='language_modeling' predicts tokens",
    ),
    (
      {'model__bidirectional': True, **CLASSES, 'task__answer': 'word'},
      "task.name='classification' predicts .* with task.answer='pooled'",
    ),
    (
      {'model__bidirectional': True, **CLASSES, 'task__text_weight': 0.1},
      'task.text_weight=0.1 predicts tokens.*or task.text_weight=0',
    ),
    (
      {'model__bidirectional': True, **CLASSES, 'model__width': 127},
      'model.width=127: model.bidirectional gives each .* an even number',
    ),
    (
      {'model__positions': 'sinusoidal', 'model__width': 127},
      'model.width=127: sinusoidal positions need an even number',
    ),
    (
      {'model__positions': 'learned', 'model__max_positions': 128},
      'data.length=256: model.max_positions=128 positions are learned',
    ),
    (
      {'model__positions': 'learned', 'evaluate__length': 300},
      'evaluate.length=300: model.max_positions=256 positions are',
    ),
    (
      {'model__positions': 'learned', 'sample__new_tokens': 257},
      'sample.new_tokens=257: with the prompt, .* model.max_positions=256',
    ),
    (
      {
        'model__positions': 'learned',
        'data__layout': 'stream',
        'data__carry_state': True,
      },
      "data.carry_state=True: positions grow .* choose 'sinusoidal'",
    ),
    ({'remat__layers': 3}, 'remat.layers=3: it must divide 2 layers'),
    (
      {'remat__layers': 1, 'remat__stored_layers': 2},
      r'remat.layers=1: it \+ remat.stored_layers=2 must divide 2 layers',
    ),
    (
      {'remat__schedule': 'log'},
      "remat.schedule='log': choose one of .*'logarithmic'",
    ),
    (
      {'remat__schedule': 'binomial', 'remat__every': 8},
      "recurrence.impl='auto' chooses its own stored states: use 'scan'",
    ),
    (
      {'remat__every': 'auto'},
      "remat.memory_gib=0.0: remat.every='auto' needs it",
    ),
    (
      {'remat__layers': 1, 'remat__keep': ('hiden',)},
      r"remat.keep=\['hiden'\]: choose from \('matmuls', ",
    ),
    (
      {
        'remat__layers': 1,
        'remat__offload': True,
        'remat__keep': ('matmuls', 'hidden'),
      },
      "remat.keep=.*: remat.offload: give only 'matmuls', or others",
    ),
    (
      {'train__precision': 'float16', 'train__loss_scale': 0.5},
      'train.loss_scale=0.5: give a power of two, 1 or more',
    ),
    (
      {'train__precision': 'float16', 'train__loss_scale': 1000.0},
      'train.loss_scale=1000.0: give a power of two, 1 or more',
    ),
    (
      {'train__precision': 'float16', 'train__loss_scale': -2.0},
      'train.loss_scale=-2.0: give a power of two, 1 or more',
    ),
    (
      {'train__precision': 'float16', 'train__loss_scale': 0.0},
      "loss_scale=0.0: train.precision='float16' .*: give 32768.0",
    ),
    (
      {'optimizer__name': 'adamv'},
      r"optimizer.name='adamv': choose one of \['adabelief', ",
    ),
    (
      {'schedule__name': 'cosinus'},
      r"schedule.name='cosinus': choose one of \['constant', ",
    ),
    (
      {'optimizer__name': 'adafactor', 'optimizer__moments': 'int8'},
      "optimizer.moments='int8': optimizer.name='adafactor' has no such key: "
      "leave it out, or choose one of .'adamw'",
    ),
    (
      {'schedule__name': 'plateau', 'evaluate__every': 0},
      "evaluate.every=0: schedule.name='plateau' needs evaluations",
    ),
    (
      {'schedule__name': 'plateau', 'evaluate__patience': 5},
      'evaluate.patience=5: .* give more than schedule.patience=5, or 0',
    ),
    (
      {'schedule__name': 'plateau', 'optimizer__learning_rate': 5e-5},
      'schedule.final_learning_rate=0.0001: .* at most '
      'optimizer.learning_rate=5e-05',
    ),
    ({'remat__every': 'often'}, "remat.every='often': .* or 'sqrt'"),
    ({'remat__every': -1}, 'remat.every=-1: give 0 or more'),
    ({'remat__every': 20}, 'remat.every=20: give up to 16 or a multiple'),
    (
      {'remat__every': 20, 'recurrence__impl': 'chunked'},
      'remat.every=20: give up to 16 or a multiple',
    ),
    ({'recurrence__chunk_length': 47}, 'chunk_length=47: give up to 16'),
    (
      {'recurrence__operands': 'float16'},
      "recurrence.operands='float16': choose one of .*'bfloat16'",
    ),
    (
      {'recurrence__operands': 'bfloat16', 'recurrence__impl': 'native'},
      "recurrence.operands='bfloat16': .* no such matmuls under recurrence."
      "impl='native': give 'auto' or .*'chunked'",
    ),
    ({'data__source': 'tfx'}, r"data.source='tfx': choose one of .*'jsonl'"),
    ({'model__cell': 'lstn'}, r"model.cell='lstn': choose one of \["),
    ({'cell__heads': 0}, 'cell.heads=0: give 1 or more'),
  ),
)
def test_values_that_contradict_each_other_are_refused(change, message):
  found = test_config.refusal(test_config.changed(**change))
  assert re.search(message, found)
  assert re.match(r'[a-z]+[.][a-z_]+=', found)  # the key and its value
