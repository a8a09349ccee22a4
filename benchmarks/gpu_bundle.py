"""Packs what `--suite=gpu` needs on a machine that has a GPU and no network.

  python -m benchmarks.gpu_bundle --folder=bundle

and on that machine, as often as it takes:

  sh bundle/run.sh RESULTS --minutes=8

The folder gets the code of this commit, wheels of the versions in
constraints.txt, and run.sh, which installs them beside that machine's own
packages and measures the cases that have no row in RESULTS/gpu.jsonl yet. There
must be Python, jax with CUDA and, for the rows of peers, PyTorch with CUDA; a
peer without it is named in its rows. The rows then belong in
benchmarks/results/.
"""

import importlib.metadata
import pathlib
import subprocess
import sys
import tarfile

from absl import flags

from launch import command

FOLDER = flags.DEFINE_string('folder', None, 'Folder to write, a new one.')
PYTHON = flags.DEFINE_string('python', '3.12', "That machine's Python.")
PRESENT = flags.DEFINE_list(
  'present', [], 'More packages that the machine has and that are left out.'
)
LIMIT = flags.DEFINE_float('limit_mib', 64.0, 'What the folder may take.')
CODE = ('benchmarks', 'configs', 'launch', 'rnn_jax')
# What the suite imports; the packages that these need come along.
ROOTS = (
  'absl-py',
  'array_record',
  'flatbuffers',
  'flax',
  'grain',
  'ml_collections',
  'optax',
  'orbax-checkpoint',
  'tokenizers',
)
# Large, or tied to the driver.
THERE = ('jax', 'jaxlib', 'ml_dtypes', 'numpy', 'scipy', 'torch', 'triton')
PEERS = (
  'fla-core',
  'einops',
  'jax-linear-attention==0.1.0',
  'equinox==0.13.8',
  'jaxtyping==0.3.11',
  'wadler_lindig==0.1.8',
)
# pip takes only wheels for exactly these.
GLIBC = (17, 24, 26, 27, 28, 31, 34, 35)
RUN = """#!/bin/sh
# sh run.sh RESULTS [flags of benchmarks.run]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${{PYTHON:-python3}}
mkdir -p "$1" && results=$(cd "$1" && pwd)
shift
if [ ! -e "$here/site" ]; then
  "$python" -m pip install --quiet --no-index --no-deps --upgrade \\
    --target "$here/site.part" "$here"/wheels/*.whl
  mv "$here/site.part" "$here/site"
fi
cd "$here/code"
[ -e "$results/gpu.jsonl" ] || [ ! -e benchmarks/results/gpu.jsonl ] ||
  cp benchmarks/results/gpu.jsonl "$results"
export PYTHONPATH="$here/site" BENCHMARK_COMMIT={commit}
exec "$python" -m benchmarks.run --suite=gpu --resume --results="$results" "$@"
"""


def main(argv: list[str]) -> None:
  del argv
  from benchmarks.harness import rows
  from rnn_jax import errors
  from rnn_jax.system import provenance

  folder = pathlib.Path(FOLDER.value or '')
  if not FOLDER.value or folder.exists():
    raise errors.InputError(f'--folder={FOLDER.value}: name a new folder')
  commit = provenance.commit(rows.WRITTEN)
  if commit is None or commit.endswith('+'):
    raise errors.InputError(
      f"the checkout is at {commit}: commit first, as rows name the code's "
      'commit'
    )
  pack(folder, commit, wheels(PYTHON.value, {*THERE, *PRESENT.value}))
  _report(folder)


def wheels(python: str, present: set[str]) -> list[str]:
  """Returns the packages to carry, as 'name==version'.

  Args:
    python: that machine's version, '3.12'.
    present: names of packages that it has.

  Raises:
    InputError: constraints.txt lacks one.
  """
  from packaging import utils

  from rnn_jax import errors

  versions = _pinned(python)
  present = {utils.canonicalize_name(name) for name in present}
  named = []
  for name in [*_needed(ROOTS, python), *PEERS]:
    package, _, version = name.partition('==')
    package = utils.canonicalize_name(package)
    version = version or versions.get(package, '')
    if package in present:
      continue
    if not version:
      raise errors.InputError(f'constraints.txt has no version of {package}')
    named.append(f'{package}=={version}')
  return named


def _pinned(python):
  """{name: version} of constraints.txt."""
  from packaging import requirements
  from packaging import utils

  pinned = {}
  for line in (_root() / 'constraints.txt').read_text().splitlines():
    if text := line.partition('#')[0].strip():
      one = requirements.Requirement(text)
      if not one.marker or one.marker.evaluate({'python_version': python}):
        (specifier,) = one.specifier
        pinned[utils.canonicalize_name(one.name)] = specifier.version
  return pinned


def _needed(roots, python):
  """These packages and what they need, by the metadata of those installed."""
  from packaging import requirements
  from packaging import utils

  seen, rest = set(), [(name, '') for name in roots]
  while rest:
    name, extra = rest.pop()
    if (name, extra) in seen or name in THERE:
      continue
    seen.add((name, extra))
    for text in importlib.metadata.requires(name) or ():
      one = requirements.Requirement(text)
      where = {'python_version': python, 'extra': extra}
      if not one.marker or one.marker.evaluate(where):
        needed = utils.canonicalize_name(one.name)
        rest += [(needed, extra) for extra in ('', *one.extras)]
  return sorted({utils.canonicalize_name(name) for name, _ in seen})


def pack(folder: pathlib.Path, commit: str, packages: list[str]) -> None:
  """Writes the folder: code, wheels and run.sh.

  Raises:
    InputError: a wheel can't be downloaded.
  """
  from rnn_jax import errors

  folder.mkdir(parents=True)
  archive = folder / 'code.tar'
  git = ('git', '-C', str(_root()), 'archive', f'--output={archive.resolve()}')
  subprocess.run([*git, 'HEAD', *CODE], check=True)
  with tarfile.open(archive) as tar:
    tar.extractall(folder / 'code', filter='data')
  archive.unlink()
  (folder / 'run.sh').write_text(RUN.format(commit=commit))
  platforms = [f'manylinux_2_{n}_x86_64' for n in GLIBC]
  download = [
    *(sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps'),
    *('--only-binary=:all:', '--implementation=cp'),
    f'--python-version={PYTHON.value}',
    *(f'--platform={name}' for name in (*platforms, 'manylinux2014_x86_64')),
    f'--dest={folder / "wheels"}',
  ]
  result = subprocess.run(
    [*download, *packages], check=False, capture_output=True, text=True
  )
  if result.returncode:
    lines = result.stderr.strip().splitlines() or ['pip failed']
    raise errors.InputError(f'pip download: {lines[-1]}')


def _report(folder):
  """Prints what was packed; it must be within the limit."""
  from rnn_jax import errors

  sizes = {
    path: path.stat().st_size for path in folder.rglob('*') if path.is_file()
  }
  total = sum(sizes.values()) / 2**20
  largest = sorted(sizes, key=sizes.get, reverse=True)[:5]
  named = ', '.join(f'{p.name} {sizes[p] / 2**20:.1f} MiB' for p in largest)
  print(f'{folder}: {total:.1f} MiB, {len(sizes)} files; largest: {named}')
  print(f'not packed, and needed there: {", ".join(THERE)}')
  if total > LIMIT.value:
    raise errors.InputError(
      f'--limit_mib={LIMIT.value:g}: the folder takes {total:.1f} MiB: name '
      'packages that the machine has in --present'
    )


def _root():
  return pathlib.Path(__file__).parents[1]


if __name__ == '__main__':
  command.run(main)
