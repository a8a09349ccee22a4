"""Collectives of a handwritten program: their groups and bytes, by hand."""

import numpy as np
import pytest

from rnn_jax.profiling import collectives

NAMES = ('data', 'fsdp', 'tensor')
TEXT = """HloModule jit_step, replica_count=2, num_partitions=4

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(%a, %b)
}

%scatter (s: f32[8,4]) -> f32[2,4] {
  %s = f32[8,4]{1,0} parameter(0)
  ROOT %scattered = f32[2,4]{1,0} reduce-scatter(%s), replica_groups=[2,4]<=[8]\
, dimensions={0}, to_apply=%sum
}

%inner (i: f32[4]) -> f32[4] {
  %i = f32[4]{0} parameter(0)
  ROOT %passed = f32[4]{0} collective-permute(%i), source_target_pairs=\
{{0,1},{1,2},{2,0}}
}

%outer (o: f32[4]) -> f32[4] {
  %o = f32[4]{0} parameter(0)
  ROOT %while.1 = f32[4]{0} while(%o), condition=%again, body=%inner, \
backend_config={"known_trip_count":{"n":"5"}}
}

%again (g: f32[4]) -> pred[] {
  %g = f32[4]{0} parameter(0)
  ROOT %less = pred[] compare(%g, %g), direction=LT
}

ENTRY %main (x: f32[8,4], y: f32[4], z: bf16[6]) -> f32[8,4] {
  %x = f32[8,4]{1,0} parameter(0)
  %y = f32[4]{0} parameter(1)
  %z = bf16[6]{0} parameter(2)
  %both = (f32[8,4]{1,0}, /*index=1*/bf16[6]{0}) all-reduce(%x, %z), \
channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%sum
  %start.1 = f32[8,4]{1,0} all-reduce-start(%x), replica_groups={}, \
to_apply=%sum
  %done.1 = f32[8,4]{1,0} all-reduce-done(%start.1)
  %start.2 = ((f32[4]{0}, bf16[6]{0}), (f32[8]{0}, bf16[12]{0})) \
all-gather-start(%y, %z), replica_groups=mesh['data'=4,'tensor'=2] {'tensor'}, \
dimensions={0}
  %done.2 = (f32[8]{0}, bf16[12]{0}) all-gather-done(%start.2)
  %start.3 = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%y),\
 source_target_pairs={{0,1},{1,0}}
  %done.3 = f32[4]{0} collective-permute-done(%start.3)
  %start.4 = ((f32[8,4]{1,0}), f32[2,4]{1,0}, u32[]) async-start(%x), \
calls=%scatter
  %done.4 = f32[2,4]{1,0} async-done(%start.4), calls=%scatter
  %swapped = (s8[3]{0}, s8[3]{0}) all-to-all(%y, %y), \
replica_groups=mesh['data'=4,'tensor'=2] {'data':(1)2}
  %gathered = s8[16]{0} all-gather(%y), replica_groups=\
mesh['axis_0'=4,'axis_1'=2], device_ids=([4,2]T(1,0)) {'axis_0','axis_1'}
  %while.2 = f32[4]{0} while(%y), condition=%again, body=%outer, \
backend_config={"known_trip_count":{"n":"2"}}
  ROOT %while.3 = f32[4]{0} while(%y), condition=%again, body=%inner
}
"""


def test_collectives_of_each_form():
  assert sorted(collectives.collectives(TEXT)) == [
    ('all-gather', 16, 8, 1),
    ('all-gather', 32 + 24, 2, 1),
    ('all-reduce', 128, 8, 1),
    ('all-reduce', 128 + 12, 2, 1),
    ('all-to-all', 6, 2, 1),
    ('collective-permute', 16, 2, 1),
    # Twice five turns of one loop, and once in one of unknown turns.
    ('collective-permute', 16, 3, 11),
    ('reduce-scatter', 128, 4, 1),
  ]


def test_bytes_that_a_device_sends():
  assert collectives.wire_bytes(TEXT) == {
    'all-gather': 14 + 28,
    'all-reduce': 224 + 140,
    'all-to-all': 3,
    'collective-permute': 12 * 16,
    'reduce-scatter': 96,
  }


def test_a_program_of_one_device_sends_nothing():
  assert collectives.collectives('HloModule a\n\nENTRY %b () -> f32[] {') == []


def test_devices_written_in_another_way_are_refused():
  text = TEXT.replace('replica_groups={}', 'replica_groups=@all')
  with pytest.raises(ValueError, match='unknown way.*@all'):
    collectives.collectives(text)


@pytest.mark.parametrize(
  ('text', 'expected'),
  (
    ('replica_groups={{0,1},{2,3}}, x', [[0, 1], [2, 3]]),
    ('replica_groups={}, x={0}', [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ('replica_groups=[2,4]<=[8], x', [[0, 1, 2, 3], [4, 5, 6, 7]]),
    (
      'replica_groups=[4,2]<=[2,4]T(1,0), x',
      [[0, 4], [1, 5], [2, 6], [3, 7]],
    ),
    (
      "replica_groups=mesh['a'=4,'b'=2] {'a'}, x",
      [[0, 2, 4, 6], [1, 3, 5, 7]],
    ),
    # The upper half of an axis of four: 0 or 4, with the same lower half.
    (
      "replica_groups=mesh['a'=4,'b'=2] {'a':(1)2}, x",
      [[0, 4], [1, 5], [2, 6], [3, 7]],
    ),
    (
      "replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}, x",
      [[0, 4], [1, 5], [2, 6], [3, 7]],
    ),
    ('source_target_pairs={{0,1},{1,2}}, x', [[0, 1], [1, 2]]),
  ),
)
def test_members_of_each_group(text, expected):
  np.testing.assert_array_equal(collectives.members(text, 8), expected)


def test_an_unknown_way_is_refused():
  with pytest.raises(ValueError, match='unknown way.*@all'):
    collectives.members('replica_groups=@all', 8)


@pytest.mark.parametrize(
  ('joined', 'expected'),
  (
    ([[0, 1], [2, 3]], ('tensor',)),
    ([[0, 2], [1, 3], [4, 6], [5, 7]], ('fsdp',)),
    ([[0, 2, 4, 6], [1, 3, 5, 7]], ('data', 'fsdp')),
    ([[0, 1], [1, 0], [6, 7]], ('tensor',)),
    ([[3]], ()),
  ),
)
def test_axes_along_which_a_group_lies(joined, expected):
  result = collectives.along(np.array(joined), (2, 2, 2), NAMES)
  assert result == expected
