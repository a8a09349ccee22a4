"""Steps of the vision suite."""

from benchmarks.suites import vision


def test_our_steps_take_as_many_pictures_as_theirs():
  listed = {case.name: case for case in vision.cases(quick=True)}
  values = vision.train(2, **listed['ours, small batches'].parameters)
  rate = vision.PICTURES / values['median']
  assert values['pictures_per_second'] == rate and values['repeats'] == 2
