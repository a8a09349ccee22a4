"""Windows: every id is predicted once an epoch, wherever the cuts are."""

import hypothesis
import numpy as np
from hypothesis import strategies as st

from rnn_jax.data import pipeline
from rnn_jax.data.batching import windows as windows_lib
from tests.support import corpora

LENGTHS = st.lists(st.integers(0, 90), min_size=1, max_size=6)


def predicted(lengths, places):
  """Counts how often each id is predicted, by example."""
  counts = [np.zeros(n, int) for n in lengths]
  for example, start, stop in zip(*places, strict=True):
    counts[example][start + 1 : max(stop, start + 1)] += 1
  return counts


@hypothesis.given(
  LENGTHS, st.integers(1, 30), st.none() | st.integers(0, 3), st.integers(0, 3)
)
def test_each_id_but_the_first_is_predicted_once(lengths, size, seed, epoch):
  cut = windows_lib.Windows(np.array(lengths), size, seed=seed)
  example, start, stop = cut.at(np.arange(len(cut)), epoch)
  for count in predicted(lengths, (example, start, stop)):
    assert (count[1:] == 1).all() and not count[:1].any()
  assert (stop - start - 1 <= size).all()
  assert (np.diff(example) >= 0).all()
  fits = np.array(lengths)[example] - 1 <= size
  assert (start[fits] == 0).all()
  assert (stop[fits] == np.array(lengths)[example[fits]]).all()


@hypothesis.given(
  LENGTHS,
  st.integers(1, 30),
  st.integers(1, 30),
  st.none() | st.integers(0, 3),
)
def test_windows_start_every_stride_and_leave_nothing_out(
  lengths, size, stride, seed
):
  stride = min(stride, size)
  cut = windows_lib.Windows(np.array(lengths), size, stride, seed)
  example, start, stop = cut.at(np.arange(len(cut)), 2)
  for count in predicted(lengths, (example, start, stop)):
    assert (count[1:] >= 1).all() and (count <= -(-size // stride)).all()
  for n in range(len(lengths)):
    inner = start[(example == n) & (start > 0) & (stop - start > 1)]
    assert (np.diff(inner) == stride).all()


def test_each_epoch_cuts_elsewhere_into_as_many_windows():
  lengths, n = np.array([1000, 1000]), np.arange(10)
  cut = windows_lib.Windows(lengths, 300, seed=0)
  assert len(cut) == 2 * 5
  starts = np.array([cut.at(n, epoch)[1] for epoch in range(50)])
  firsts = starts[:, [1, 6]]  # where the first whole window of each begins
  assert len({*map(tuple, firsts.tolist())}) > 45
  assert len({*firsts[:, 0].tolist()} & {*firsts[:, 1].tolist()}) < 20
  assert abs(firsts.mean() - 150) < 60 and firsts.max() < 300
  again = windows_lib.Windows(lengths, 300, seed=0)
  np.testing.assert_array_equal(again.at(n, 7)[1], starts[7])
  # The epochs of many windows at once are those of each.
  each = cut.at(np.tile(n, 50), np.repeat(np.arange(50), 10))[1]
  np.testing.assert_array_equal(each, starts.ravel())
  other = windows_lib.Windows(lengths, 300, seed=1)
  assert (other.at(n, 7)[1] != starts[7]).any()


def test_without_a_seed_every_epoch_is_cut_from_the_start():
  cut = windows_lib.Windows(np.array([8, 3]), 4)
  for epoch in (0, 1):
    example, start, stop = cut.at(np.arange(len(cut)), epoch)
    assert example.tolist() == [0, 0, 1]
    assert start.tolist() == [0, 4, 0] and stop.tolist() == [5, 8, 3]


def test_the_config_s_stride_is_in_tokens(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, length=24, stride=6)
  examples = corpus.examples(cfg.data, 'train', 0)
  windows = corpus.windows(cfg.data, 'train', 0)
  places = zip(*windows.at(np.arange(len(windows))), strict=True)
  targets = [examples.read(*place)[1:] for place in places]
  counts = np.bincount(np.concatenate(targets))
  # Each token within the longest document is in four windows.
  whole = corpus.tokenizer.encode_document(corpora.unique_texts()[-1])
  assert len(whole) == 300 and (counts[whole[24:-24]] == 4).all()
  held_out = pipeline.heldout_batches(corpus, cfg, 'validation')
  once = corpora.count_targets(held_out)
  assert {n for t, n in once.items() if t != corpus.tokenizer.boundary} == {1}
