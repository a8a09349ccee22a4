"""Drafts by prompt lookup."""

import jax
import numpy as np

from rnn_jax.inference import prompt_lookup


def test_the_latest_longest_match_is_looked_up():
  texts = [[1, 2, 3, 4, 2, 3, 5, 1, 2, 3], [1, 2, 3, 4, 9, 2, 3], [1, 2, 3, 2]]
  past = prompt_lookup.history([np.int32(text) for text in texts], 4)
  tokens, found = jax.jit(prompt_lookup.look_up, static_argnums=1)(past, 2)
  assert found.tolist() == [True, True, False]
  assert tokens[:2].tolist() == [[4, 2], [4, 9]]


def test_of_a_long_text_the_last_tokens_are_kept():
  recent, text = prompt_lookup.Recent(2, kept=5, room=3), [*range(7)]
  recent.begin(1, np.array(text))
  for n in range(7, 40):
    text.append(n)
    recent.add(1, [n])
    tokens_BxH, length_B = recent.copy(2)
    assert length_B[0] == 0
    assert 5 <= length_B[1] <= 10
    assert tokens_BxH.shape == (2, 13)
    assert tokens_BxH[1, : length_B[1]].tolist() == text[-length_B[1] :]


def test_a_text_whose_drafts_are_wrong_pauses():
  recent, drafts = prompt_lookup.Recent(1, kept=5, room=3), []
  recent.begin(0, np.arange(3))
  for gained in [0] * 45 + [3] * 20:
    drafts.append(bool(recent.copy(1).length_B[0]))
    if drafts[-1]:
      recent.judge(0, gained, 4, cost=1.5)
    else:
      recent.judge(0, 0, 0, cost=1.5)
  wrong = np.flatnonzero(drafts[:45])
  # 8 checks for nothing are allowed; then 1, 2, 4, 8, 16 calls have none.
  assert np.diff(wrong).tolist() == [1, 1, 2, 3, 5, 9, 17]
  assert all(drafts[drafts.index(True, 45) :])
  recent.judge(0, 0, 0, cost=1.5)  # without a draft nothing is lost
  assert recent.copy(1).length_B[0] == 3
