"""Scores the texts of a command: prints a row for each as soon as it is made.

The page of --html is written when all rows are printed, or when one is refused.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.inference import model as model_lib
from rnn_jax.inference import score_inputs
from rnn_jax.inference import score_report
from rnn_jax.inference import surprise_page
from rnn_jax.runs.checkpoints import checkpoint as checkpoint_lib
from rnn_jax.system import files

ON_PAGE = 5  # most likely tokens that a page shows, by default


@dataclasses.dataclass(frozen=True)
class Options:
  """What to print and write.

  Attributes:
    top_k: most likely tokens in the place of each; None: ON_PAGE with a page,
      else 0.
    per_token: whether to print each token, as a top_k does too.
    json: whether to print JSON objects.
    page: file of the HTML page; '': none.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  top_k: int | None = None
  per_token: bool = False
  json: bool = False
  page: str = ''

  def __post_init__(self):
    if self.top_k is not None and self.top_k < 0:
      errors.refuse('top_k', self.top_k, 'give 0 or more')
    folder = pathlib.Path(self.page).absolute().parent
    if self.page and (os.path.isdir(self.page) or not folder.is_dir()):
      errors.refuse('html', self.page, 'give a file in a folder that exists')

  @property
  def prints_tokens(self) -> bool:
    return self.per_token or bool(self.top_k)

  @property
  def alternatives(self) -> int:
    """How many most likely tokens are computed."""
    if self.top_k is None:
      return ON_PAGE if self.page else 0
    return self.top_k


def open_texts(
  text: str | None, paths: tuple[str, ...], lines: bool, column: str
) -> Iterator[score_inputs.Text]:
  """Returns the text of a command line, or the texts of its files.

  Raises:
    InputError: there are both or neither, or as `score_inputs.open_texts`.
  """
  if (text is None) == (not paths):
    raise errors.InputError('give either --text or --input')
  if text is None:
    return score_inputs.open_texts(paths, lines, column)
  if lines or column:
    raise errors.InputError(
      '--lines and --column are of --input: leave them out'
    )
  return iter([score_inputs.of_string(text)])


def score_run(
  workdir: str | os.PathLike,
  checkpoint: str | int,
  texts: Iterator[score_inputs.Text],
  options: Options,
  weights: str = 'float32',
) -> None:
  """Scores texts with the model of a run, and prints them.

  Args:
    workdir: the run's folder.
    checkpoint: of it.
    texts: what is scored.
    options: what to print and write.
    weights: the format of the matrices in memory.

  Raises:
    InputError: no such run or checkpoint, its model can't score, or a text is
      refused; the rows before it are printed.
  """
  which = checkpoint_lib.parse_which(checkpoint)
  model = model_lib.load(workdir, which, weights)
  scorer, top_k = model.scorer, options.alternatives
  if options.top_k is None:
    top_k = min(top_k, model.bundle.tokenizer.size)
  page = surprise_page.Page(f'{workdir}, checkpoint {checkpoint}')
  try:
    _print_all(scorer, top_k, texts, options, page)
  finally:
    if options.page:
      files.write_whole(options.page, page.html())


def _print_all(scorer, top_k, texts, options, page):
  table = score_report.Table()
  if not options.json:
    print(table.header(), flush=True)
  for text in texts:
    score = _scored(scorer, top_k, text)
    if options.page:
      page.add(text.id, score)
    if options.json:
      row = score_report.values(text.id, score, options.prints_tokens)
      print(files.to_json(row, ensure_ascii=False), flush=True)
      continue
    print(table.line(text.id, score), flush=True)
    if options.prints_tokens:
      print('\n'.join(score_report.token_lines(score)), flush=True)
  if not options.json and (total := table.total()):
    print(total, flush=True)


def _scored(scorer, top_k, text):
  try:
    return scorer.score([text.content], top_k)[0]
  except errors.InputError as error:
    raise errors.InputError(f'{text.id}: {error}') from None
