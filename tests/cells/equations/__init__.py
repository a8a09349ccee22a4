"""The equation of each cell in float64 NumPy, a row of a batch at a time.

`EQUATIONS[name](params, x_LxD, config)` returns the inputs of a cell's output
layer at each step, from a state of zeros, and its gates by name or None;
`SIZES[name](D, config)` is the documented number of parameters.
"""

from tests.cells.equations import attention
from tests.cells.equations import delta
from tests.cells.equations import matrix
from tests.cells.equations import simple_rnn
from tests.cells.equations import vector

SIZES = attention.SIZES | delta.SIZES | matrix.SIZES | vector.SIZES
EQUATIONS = {'simple_rnn': simple_rnn.simple_rnn} | {
  name: getattr(module, name)
  for module in (attention, delta, matrix, vector)
  for name in module.SIZES
}
