"""The original dialogues."""

from tests.support import files


def test_the_original_daily_dialog(tmp_path):
  path = tmp_path / 'dialogues_text.txt'
  path.write_text('Hi . __eou__ You too ? __eou__ \nOne __eou__\n')
  turns = [example['turns'] for example in files.values('daily_dialog', path)]
  assert turns == [['Hi .', 'You too ?'], ['One']]
  path.write_text('Hi . __eou__\nno end of a turn\n')
  assert files.refusal('daily_dialog', path).startswith(f'{path}:2: no __eou__')
