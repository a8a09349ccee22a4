"""The published model's operations are counted."""

from benchmarks.workloads import published_model


def test_the_operations_of_a_step_are_counted():
  config = published_model.config({}, batch=2, length=3)
  # By hand: 2 D (3K + P), 5 K P, 2 P D a layer; 2 D V for the head; times 3.
  layer = 2 * 128 * 160 + 5 * 32 * 64 + 2 * 64 * 128
  assert published_model.training_flops(config, 2, 3) == 3 * 6 * (
    2 * layer + 2 * 128 * 512
  )
