"""Compares each form of the recurrences with a float64 loop.

    python -m launch.selfcheck

Compares outputs, final state and every gradient on this machine's device, for
gates of 0, 1 and in between, resets, several shapes and formats: of gated
linear attention, the delta rule and its general form. Prints a table of errors
and bounds and exits with 1 if an error exceeds its bound. One line says which
C++ library is in use, or why it isn't available.
"""

import sys

from absl import flags

from launch import command

PURPOSE = 'Measure'
IMPL = flags.DEFINE_string('impl', '', 'Implementation to check; empty: all.')


def main(argv):
  del argv
  import jax

  from rnn_jax import errors
  from rnn_jax import selfcheck
  from rnn_jax.native import library
  from rnn_jax.system import streams

  chosen = [c for c in selfcheck.cases() if IMPL.value in ('', c.impl)]
  if not chosen:
    names = sorted({case.impl for case in selfcheck.cases()})
    raise errors.InputError(f'impl={IMPL.value!r}: choose one of {names}')
  streams.stdout_is_the_result()
  print(f'{jax.devices()[0].device_kind}, jax {jax.__version__}')
  print(library.describe(), flush=True)
  form = '{:<8} {:<12} {:>4} {:>7} {:<5} {:<7} {:<9} {:<9} {:>8} {:>8}  {}'
  header = 'op', 'impl', 'L', 'KxP', 'decay', 'read', 'inputs', 'operands'
  header += 'error', 'bound'
  print(form.format(*header, 'worst'))
  failed = 0
  for case in chosen:
    result = selfcheck.check(case)
    failed += not result.passed
    print(
      form.format(
        case.op,
        case.impl,
        case.L,
        f'{case.K}x{case.P}',
        case.decay,
        case.read,
        case.dtype,
        case.operands,
        f'{result.error:.1e}',
        f'{result.bound:.1e}',
        result.where if result.passed else f'WRONG: {result.where}',
      ),
      flush=True,
    )
  print(f'{len(chosen) - failed} of {len(chosen)} within their bounds')
  sys.exit(1 if failed else 0)


if __name__ == '__main__':
  command.run(main)
