"""Memory of a Transformer's training step, technique by technique.

ChatGoT's small and gpt2 sizes at the batches that were published, and the
decoder of the memory laboratory: compiled and not run, arguments and
temporaries by XLA. 'whole' has all logits at once, as a plain loss does; the
others take them in blocks, as training here always does.
"""

from benchmarks import cases as cases_lib

MODELS = {  # config, its argument, rows
  'small': ('chatgot', 'small', 256),
  'gpt2': ('chatgot', 'gpt2', 32),
  'decoder': ('memory_lab', '', 64),
}
EXACT = {'recurrence.impl': 'exact'}
EIGHT_BIT = {'optimizer.moments': 'int8'}
CHECKPOINTS = {'remat.layers': 1}
BOTH = EIGHT_BIT | CHECKPOINTS
FLASH = {'recurrence.impl': 'blocked'}
TECHNIQUES = {
  'plain, whole': EXACT,
  '8-bit, checkpoints, whole': EXACT | BOTH,
  'plain': EXACT,
  '8-bit': EXACT | EIGHT_BIT,
  'checkpoints': EXACT | CHECKPOINTS,
  'flash': FLASH,
  '8-bit, checkpoints': EXACT | BOTH,
  '8-bit, checkpoints, flash': BOTH | FLASH,
  '8-bit, checkpoints, flash, low_memory': BOTH
  | FLASH
  | {'train.compiler': 'low_memory'},
}


def cases(quick):
  """Each technique on each model."""
  models = {'tiny': ('chatgot', 'tiny', 2)} if quick else MODELS
  return [
    cases_lib.Case(
      f'{model}: {name}',
      'transformer.step_memory',
      {
        'config': config,
        'argument': argument,
        'batch': batch,
        'overrides': changed,
        'whole': name.endswith('whole'),
      },
      1,
    )
    for model, (config, argument, batch) in models.items()
    for name, changed in TECHNIQUES.items()
  ]
