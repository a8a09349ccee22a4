"""The original film reviews."""

from tests.support import files


def test_the_original_rt_polarity(tmp_path):
  (tmp_path / 'rt-polarity.pos').write_bytes(b'un clich\xe9 \n')
  (tmp_path / 'rt-polarity.neg').write_bytes(b'bad\n')
  good = files.values('rt_polarity', tmp_path / 'rt-polarity.pos')
  assert good == [{'text': 'un cliché', 'label': 'pos'}]
  bad = files.values('rt_polarity', tmp_path / 'rt-polarity.neg')
  assert bad == [{'text': 'bad', 'label': 'neg'}]
  (tmp_path / 'RT.POS').write_bytes(b'good\n')
  good = files.values('rt_polarity', tmp_path / 'RT.POS')
  assert good == [{'text': 'good', 'label': 'pos'}]
  (tmp_path / 'other.txt').write_text('x')
  assert 'end in .pos and .neg' in files.refusal(
    'rt_polarity', tmp_path / 'other.txt'
  )
