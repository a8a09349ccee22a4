"""llama.cpp reads what is written here: its logits, its tokens, its texts."""

import contextlib
import ctypes
import dataclasses

import jax
import numpy as np
import pytest

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop.gguf import blocks
from tests.interop.gguf import models
from tests.interop.gguf import test_vocabulary as vocabularies
from tests.support import bundles

pytestmark = pytest.mark.peers
lib = pytest.importorskip('llama_cpp')
TOKENS = np.random.default_rng(1).integers(0, models.V - 1, 24)
PROMPT, NEW = 6, 40
F32 = 0  # of a cache
# Largest difference of logits in units of the largest. Measured: 5e-7; GPT-2's
# GELU is a table in float16 there.
TOLERANCE = {'gpt2': 2e-3}


@pytest.fixture(scope='module', autouse=True)
def _quiet():
  lib.llama_backend_init()
  quiet = lib.llama_log_callback(lambda level, text, data: None)
  lib.llama_log_set(quiet, ctypes.c_void_p(0))
  yield quiet


@contextlib.contextmanager
def opened(path, length=64):
  """Yields a Model of a file."""
  model = lib.llama_model_load_from_file(
    str(path).encode(), lib.llama_model_default_params()
  )
  assert model, path
  options = lib.llama_context_default_params()
  options.n_ctx = options.n_batch = options.n_ubatch = length
  options.n_threads = options.n_threads_batch = 1
  options.type_k = options.type_v = F32
  options.flash_attn_type = 0
  context = lib.llama_init_from_model(model, options)
  assert context, path
  yield Model(model, context)
  lib.llama_free(context)
  lib.llama_model_free(model)


@dataclasses.dataclass
class Model:
  """A model in llama.cpp, and its only sequence."""

  model: object
  context: object
  at: int = 0

  @property
  def vocabulary(self):
    return lib.llama_model_get_vocab(self.model)

  def logits(self, tokens):
    """Logits after each of the next tokens, read at once."""
    count = len(tokens)
    batch = lib.llama_batch_init(count, 0, 1)
    batch.n_tokens = count
    for n, token in enumerate(tokens):
      batch.token[n], batch.pos[n] = int(token), self.at + n
      batch.n_seq_id[n], batch.seq_id[n][0] = 1, 0
      batch.logits[n] = True
    assert lib.llama_decode(self.context, batch) == 0
    self.at += count
    size = lib.llama_vocab_n_tokens(self.vocabulary)
    found = [
      np.ctypeslib.as_array(
        lib.llama_get_logits_ith(self.context, n), (size,)
      ).copy()
      for n in range(count)
    ]
    lib.llama_batch_free(batch)
    return np.stack(found)

  def encode(self, text, begin=False):
    """Ids of a text."""
    content, most = text.encode(), 4 * len(text) + 8
    ids = (lib.llama_token * most)()
    count = lib.llama_tokenize(
      self.vocabulary, content, len(content), ids, most, begin, False
    )
    assert count >= 0
    return [*ids[:count]]


def greedy(start, step):
  """The likeliest tokens after those of TOKENS[:PROMPT].

  `start` reads several and `step` one; both return the last logits.
  """
  logits, written = start(TOKENS[:PROMPT]), []
  for _ in range(NEW):
    written.append(int(np.argmax(logits)))
    logits = step(written[-1])
  return written


def ours(bundle):
  """Returns (start, step) of a bundle's model."""
  model = bundles.model(bundle)
  state = model.apply({}, 1, method='init_state')

  @jax.jit
  def run(state, tokens):
    return model.apply({'params': bundle.params}, state, tokens)

  def read(tokens):
    nonlocal state
    state, y = run(state, np.array([tokens], np.int32))
    return np.asarray(y)[0, -1]

  return read, lambda token: read([token])


@pytest.fixture(scope='module', params=models.CASES, name='made')
def _made(request, tmp_path_factory):
  """(Case, bundle, the file of it)."""
  bundle = models.make(request.param)
  folder = tmp_path_factory.mktemp('gguf') / 'out'
  return request.param, bundle, models.write(bundle, folder)


def relative(got, want):
  return np.abs(got - want).max() / np.abs(want).max()


def test_the_same_logits_of_a_row_and_of_steps(made, record_property):
  case, bundle, path = made
  want = bundles.logits(bundle, TOKENS[None])[0]
  limit = TOLERANCE.get(case, 1e-5)
  with opened(path) as model:
    row = relative(model.logits(TOKENS), want)
  with opened(path) as model:
    steps = np.concatenate([model.logits([token]) for token in TOKENS])
  steps = relative(steps, want)
  record_property('differences', (row, steps))
  assert row <= limit and steps <= limit, (row, steps)


def test_parts_have_the_logits_of_one_file(tmp_path):
  bundle = models.make('mamba2')
  path = models.write(bundle, tmp_path / 'out', max_shard_size='6KB')
  assert len([*path.parent.glob('*.gguf')]) > 2
  want = bundles.logits(bundle, TOKENS[None])[0]
  with opened(path) as model:
    assert relative(model.logits(TOKENS), want) <= 1e-5


def test_the_same_greedy_text(made):
  _, bundle, path = made
  want = greedy(*ours(bundle))
  with opened(path) as model:
    got = greedy(
      lambda tokens: model.logits(tokens)[-1],
      lambda token: model.logits([token])[-1],
    )
  assert got == want


@pytest.mark.parametrize('form', [x for x in blocks.FORMATS if x != 'float32'])
# Without experts: a rounded router may choose others.
@pytest.mark.parametrize('case', ('llama', 'mamba2', 'rwkv7'))
def test_smaller_weights_are_the_numbers_that_are_read_back(
  case, form, tmp_path
):
  path = models.write(models.make(case), tmp_path / 'out', dtype=form)
  want = bundles.logits(models.read(path), TOKENS[None])[0]
  with opened(path) as model:
    got = model.logits(TOKENS)
  # llama.cpp rounds the other factor of a product: to 8 bits with blocks.
  assert relative(got, want) <= (0.06 if form.startswith('q') else 0.01)


@pytest.mark.parametrize(
  'make',
  (
    tokenizer_lib.Bytes,
    vocabularies.byte_pairs,
    lambda: tokenizer_lib.Pretrained(*vocabularies.sentence_pieces(), 2),
  ),
  ids=('bytes', 'byte pairs', 'pieces'),
)
def test_the_same_ids_of_texts(make, tmp_path):
  tokenizer = make()
  path = models.write(models.make('mamba2', tokenizer), tmp_path / 'out')
  with opened(path) as model:
    for text in vocabularies.TEXTS:
      assert model.encode(text) == tokenizer.encode_document(text).tolist()
    begun = model.encode('the', begin=True)
    first = 1 if tokenizer.boundary == 2 else tokenizer.boundary
    assert begun == [first, *tokenizer.encode_document('the')]
    end = lib.llama_vocab_eos(model.vocabulary)
    assert end == tokenizer.boundary


def test_what_llama_cpp_quantized_is_read(tmp_path):
  whole = models.write(models.make('llama', hidden_size=256), tmp_path / 'a')
  options = lib.llama_model_quantize_default_params()
  for kind in (lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, lib.LLAMA_FTYPE_MOSTLY_Q2_K):
    options.ftype, options.nthread = kind, 1
    path = tmp_path / f'{kind}.gguf'
    failed = lib.llama_model_quantize(
      str(whole).encode(), str(path).encode(), ctypes.byref(options)
    )
    assert failed == 0
    bundle = models.read(path)
    want = bundles.logits(bundle, TOKENS[None])[0]
    with opened(path) as model:
      got = model.logits(TOKENS)
    assert relative(got, want) < 0.1
