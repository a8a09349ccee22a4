"""model.cells: the sections of its cells, and what is refused."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import pattern

CELLS = ('gla', 'gla', 'attention')


def raw(**changes):
  """A hybrid of two periods, `section__key=value` changed."""
  made = config_lib.default(CELLS)
  made.model.layers = 6
  given = {key.replace('__', '.'): value for key, value in changes.items()}
  config_lib.override(made, given)
  return made


def refusal(config):
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(config)
  return str(caught.value)


def test_each_distinct_cell_has_a_section():
  made = raw(cell__gla__rank=3, cell__attention__kv_heads=2)
  parsed = config_lib.parse(made)
  assert (parsed.cell.gla.rank, parsed.cell.attention.kv_heads) == (3, 2)
  assert parsed.cell.attention.window == parsed.data.length  # resolved
  assert parsed.cell.of('gla') is parsed.cell.gla
  assert parsed.model.pattern == CELLS and parsed.model.periods == 2
  plain = config_lib.to_dict(parsed)
  assert {*plain['cell']} == {'gla', 'attention'}
  assert config_lib.parse(plain) == parsed
  whole = config_lib.completed({'model': {'cells': [*CELLS], 'layers': 6}})
  assert config_lib.parse(whole) == config_lib.parse(raw())


def test_another_pattern_keeps_the_sections_of_cells_that_stay():
  made = raw(cell__attention__window=8)
  made.model.cells = ('kda', 'attention')
  assert {*made.cell} == {'kda', 'attention'}
  assert made.cell.attention.window == 8
  made.model.cells = ()
  assert 'key_width' in made.cell and 'kda' not in made.cell
  with pytest.raises(errors.InputError, match="model.cells='gru2': choose"):
    made.model.cells = ('gru2', 'attention')
  assert made.model.cells == ()


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    (
      {'model__layers': 4},
      "model.layers=4: give a multiple of the 3 cells of model.cells=('gla', ",
    ),
    (
      {'model__cells': ('gla', 'gla')},
      "model.cells=('gla', 'gla'): it names one cell: give model.cell='gla'",
    ),
    (
      {'model__cells': ('gla', 'gru') * 3},
      "layers repeat a pattern: give ('gla', 'gru')",
    ),
    (
      {'model__cell': 'gru'},
      "model.cell='gru': model.cells=('gla', 'gla', 'attention') says which "
      "cells: leave it at 'simple_rnn'",
    ),
    (
      {'model__embedding_width': 8, 'model__block': 'plain'},
      'model.embedding_width=8: all periods of model.cells are alike',
    ),
    (
      {'model__mlps': ('mlp', 'none', 'mlp')},
      "model.mlps=('mlp', 'none', 'mlp'): it has no effect without model.mlp_",
    ),
    (
      {'model__mlps': ('mlp',) * 3, 'model__mlp_width': 8},
      "model.mlps=('mlp', 'mlp', 'mlp'): all are alike: give ()",
    ),
    (
      {'model__mlps': ('mlp', 'none'), 'model__mlp_width': 8},
      "model.mlps=('mlp', 'none'): give one of ('mlp', 'experts', 'none') for ",
    ),
    (
      {'model__mlps': ('mlp', 'none', 'moe'), 'model__mlp_width': 8},
      "model.mlps=('mlp', 'none', 'moe'): give one of ('mlp', 'experts', ",
    ),
    (
      {'model__mlps': ('mlp', 'none', 'experts'), 'model__mlp_width': 8},
      'model.experts.count=0: give both, or neither',
    ),
    (
      {
        'model__cells': ('gla', 'gru') * 3,
        'model__mlps': ('mlp', 'none') * 3,
        'model__mlp_width': 8,
      },
      "layers repeat a pattern: give ('gla', 'gru')",
    ),
    (
      {'cell__attention__head_width': 5},
      'cell.attention.head_width=5: rotary positions need an even number',
    ),
    (
      {'cell__attention__kv_heads': 3},
      'cell.attention.kv_heads=3: it must divide cell.attention.heads=4',
    ),
    (
      {'recurrence__impl': 'chunked'},
      "recurrence.impl='chunked': model.cell='attention' has ('auto', ",
    ),
    (
      {'remat__layers': 2},
      'remat.layers=2: give a multiple of the 3 cells of model.cells, or 0',
    ),
    (
      {'mesh__pipe': 3},
      'mesh.pipe=3: it must divide model.layers=6 / 3, the periods of model.',
    ),
    (
      {'mesh__tensor': 3, 'cell__gla__heads': 3},
      'mesh.tensor=3: it must divide cell.attention.heads=4',
    ),
    (
      {'model__cells': ('kda', 'gla'), 'mesh__sequence': 2},
      "mesh.sequence=2: not available with model.cell='kda': give mesh.sequen",
    ),
    (
      {'model__cells': ('gla', 'simple_rnn'), 'cell__simple_rnn__heads': 0},
      'cell.simple_rnn.heads=0: give 1 or more',
    ),
  ),
)
def test_a_contradiction_names_the_key_and_the_remedy(changes, message):
  assert message in refusal(raw(**changes))


def test_layers_of_one_cell_may_differ_in_their_mlps():
  made = config_lib.default(('gla', 'gla'))
  made.model.update(layers=4, mlp_width=8, mlps=('none', 'experts'))
  made.model.experts.count = 2
  parsed = config_lib.parse(made)
  none, experts = (parsed.model.of_mlp(kind) for kind in parsed.model.mlps)
  assert (none.mlp_width, none.experts.count) == (0, 0)
  assert (experts.mlp_width, experts.experts.count) == (8, 2)


@pytest.mark.parametrize(
  ('section', 'message'),
  (
    (
      {'rank': 3},
      "cell.rank=3: model.cells=('gla', 'gla', 'attention') has no such key: "
      'give it to one of them, as in cell.gla.rank',
    ),
    ({'gla': {'rnk': 3}}, "unknown config key cell.gla.rnk: did you mean 'ran"),
    ({'gla': 3}, 'cell.gla=3: give keys: ['),
    ({'gla': {'rank': 'x'}}, "cell.gla.rank='x' is of type str: give int"),
  ),
)
def test_a_key_in_the_wrong_place_is_refused(section, message):
  config = {'model': {'cells': [*CELLS], 'layers': 6}, 'cell': section}
  assert refusal(config).startswith(message)


@pytest.mark.parametrize('cells', ('gla', [3], [['gla']], {'gla': 1}))
def test_what_names_no_cells_is_refused(cells):
  assert refusal({'model': {'cells': cells}}).startswith('model.cells=')


def test_two_sections_of_one_name_are_refused():
  own = 'rnn_jax.cells.gla'
  message = refusal({'model': {'cells': ['gla', own]}})
  assert message == (
    f"model.cells=('gla', {own!r}): two cells would have section cell.gla: "
    'rename one of the modules'
  )


def test_a_file_of_data_names_no_code():
  stranger = {'model': {'cells': ['gla', 'nowhere.mine']}}
  with pytest.raises(errors.InputError, match=r'give --modules=nowhere\.mine'):
    config_lib.parts.check_known(stranger, 'a file')


def test_a_module_of_the_user_has_the_section_of_its_last_name():
  own = 'rnn_jax.cells.gla'
  config = config_lib.default((own, 'attention'))
  config.cell.gla.rank = 5
  parsed = config_lib.parse(config)
  assert parsed.cell.of(own).rank == 5
  assert pattern.sections(parsed.cell) == [
    ('cell.gla', parsed.cell.gla),
    ('cell.attention', parsed.cell.attention),
  ]
