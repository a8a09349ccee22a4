"""A trained model: open a run, and ask it questions.

    import rnn_jax

    model = rnn_jax.load('runs/demo')
    model.generate('def main(', max_new_tokens=50)[0].text
    model.chat([{'role': 'user', 'content': 'Hello .'}]).text
    model.predict(['a film to remember'])[0].label
    model.embed(['a text', 'another one'])
    model.score(['how likely is this?'])[0].bits_per_byte
    model.forecast(frame)  # of series of numbers, docs/series.md
    model.anomalies(frame)

A run that was moved or copied opens without the data that it was trained on.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.data.images import codec
from rnn_jax.data.images import images as images_lib
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_tables
from rnn_jax.inference import anomalies as anomalies_lib
from rnn_jax.inference import conversation
from rnn_jax.inference import covariates as covariates_lib
from rnn_jax.inference import embedding
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.inference import forecast_rows
from rnn_jax.inference import generate as generate_lib
from rnn_jax.inference import layers
from rnn_jax.inference import predict as predict_lib
from rnn_jax.inference import readings as readings_lib
from rnn_jax.inference import sampling
from rnn_jax.inference import score as score_lib
from rnn_jax.inference import series_streams
from rnn_jax.inference import surprise
from rnn_jax.inference import text as text_lib
from rnn_jax.models import packed_weights
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import compile_cache

# A text; of image models the pixels, HxWxC bytes, or the path of a file.
Input = str | os.PathLike[str] | np.ndarray


class Model:
  """A model with its tokenizer and config.

  Parameters move to the device with the first question, and stay there.

  Attributes:
    bundle: the config, the tokenizer and the parameters, which are packed
      (models/packed_weights.py) unless `weights` is 'float32' and batches may
      change the bits of texts.
  """

  def __init__(
    self,
    bundle: bundle_lib.Bundle,
    weights: str = 'float32',
    batch_invariant: bool = False,
    states: str = 'float32',
  ) -> None:
    """Takes a model; `weights` is the format of its matrices in memory.

    `batch_invariant` is that of generate.Generator, which then shares the
    matrices with what else reads them. `states` is the format of matrix states
    while it writes.

    Raises:
      InputError: `weights` isn't one of generate.WEIGHTS, or the model doesn't
        write with such `states`.
    """
    generate_lib.check_weights(weights)
    if states != 'float32':
      generate_lib.check_states(bundle.config, states)
    batch_invariant = batch_invariant and bundle.config.task.writes_text
    packs = weights != 'float32' or batch_invariant
    if packs and not packed_weights.is_packed(bundle.params):
      packed = packed_weights.pack_to_serve(
        jax.device_put(bundle.params), weights, batch_invariant
      )
      bundle = dataclasses.replace(bundle, params=jax.device_get(packed))
    self.bundle = bundle
    self._formats = weights, batch_invariant, states

  @property
  def classes(self) -> tuple[str, ...]:
    """The names of the classes; () of a model that doesn't classify."""
    return self.bundle.config.data.classes

  def generate(
    self,
    prompts: str | Sequence[str],
    *,
    max_new_tokens: int = 200,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
  ) -> list[text_lib.Completion]:
    """Continues prompts.

    Args:
      prompts: one text or several; '' is the start of a document.
      max_new_tokens: at most, of each.
      temperature: of the sampling; 0: the most likely token, always.
      top_k: sample from the k most likely tokens; 0: from all.
      top_p: sample from the most likely tokens with this probability together.
      seed: of the sampling. A prompt's text follows from it, from the prompt
        and from the prompt's position in the list.
      stop: strings, before any of which a text ends.

    Returns:
      A Completion for each prompt, of one prompt too: prompt, text, tokens,
      reason ('length', 'boundary' or 'stop') and logprob.

    Raises:
      InputError: the model doesn't write text, an option is out of its range,
        or the vocabulary doesn't cover a prompt.
    """
    prompts = [prompts] if isinstance(prompts, str) else [*prompts]
    if not prompts:
      return []
    settings = sampling.Sampling(temperature, top_k, top_p)
    options = _options(max_new_tokens, settings, seed, stop)
    return [*self.generator.generate(prompts, options).completions]

  def stream(
    self,
    prompt: str,
    *,
    max_new_tokens: int = 200,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
  ) -> Iterator[str]:
    """Yields the parts of a prompt's continuation as they are generated.

    They add up to `generate(prompt, ...)[0].text`. Leaving the loop ends the
    generation. The arguments are those of `generate`.

    Raises:
      InputError: as `generate`, before the first part.
    """
    settings = sampling.Sampling(temperature, top_k, top_p)
    options = _options(max_new_tokens, settings, seed, stop)
    return self.generator.stream(prompt, options)

  def chat(
    self,
    messages: Sequence[Mapping[str, str]],
    *,
    max_new_tokens: int = 200,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
  ) -> text_lib.Completion:
    """Replies to a conversation, as a model that was trained on dialogues.

    Args:
      messages: of the whole conversation, dicts with 'role' ('system', 'user'
        or 'assistant') and 'content'; the last one isn't the assistant's.
      max_new_tokens: of the reply, at most.
      temperature: of the sampling; 0: the most likely token, always.
      top_k: sample from the k most likely tokens; 0: from all.
      top_p: sample from the most likely tokens with this probability together.
      seed: of the sampling.

    Returns:
      The reply, a Completion: text, tokens, reason and logprob; its prompt is
      the text that was read.

    Raises:
      InputError: the model wasn't trained on dialogues, a message is malformed,
        or an option is out of its range.
    """
    settings = sampling.Sampling(temperature, top_k, top_p)
    options = _options(max_new_tokens, settings, seed, ())
    return conversation.reply(self.generator, messages, options)

  def predict(
    self, inputs: Input | Sequence[Input] | Any, *, threshold: float = 0.0
  ) -> list[predict_lib.Prediction]:
    """Predicts the class of texts, of images or of series of numbers.

    Args:
      inputs: one text or several. Of a model of images: arrays of uint8,
        height x width x channels, or paths of image files. Of a model of
        series: a DataFrame, as the table of training but for its labels; an
        array of series x channels x steps; or a list of arrays of channels x
        steps. A text too long for the model loses its end, as in training.
      threshold: the label is None where its probability is lower.

    Returns:
      A Prediction for each input, of one input too; of each series of a
      DataFrame, in the order of their first rows. It doesn't depend on the
      other inputs. Of a calibrated run, its probabilities are calibrated. Of
      task 'series_regression' it has a `value`, of 'series_tagging' `labels`.

    Raises:
      InputError: the model doesn't classify, an input is of another kind, or
        the threshold isn't from 0 to 1.
    """
    return self._predictor.predict(self._inputs(inputs), threshold)

  def embed(self, inputs: Input | Sequence[Input]) -> np.ndarray:
    """Returns the features of texts or images, NxD, float32.

    Of a classifier, they are what its head reads: the pooled states. Of a model
    that writes text, the mean over all steps of what its head reads.

    Args:
      inputs: as of `predict`.

    Raises:
      InputError: an input is of another kind, the vocabulary doesn't cover a
        text, or it is longer than learned positions allow.
    """
    given = self._inputs(inputs)
    task = self.bundle.config.task
    if task.classifies or task.series_label:
      return self._predictor.embed(given)
    writer = self.generator
    ids = [writer.prompts.encode(text) for text in given]
    longest = writer.prompts.longest
    for n, each in enumerate(ids):
      if longest and len(each) > longest:
        raise errors.InputError(
          f'text {n} has {len(each)} tokens, and the model has learned '
          f'positions for {longest}: shorten it'
        )
    return embedding.features(writer.model, writer.params, ids)

  def score(
    self, texts: str | Sequence[str], *, top_k: int = 0
  ) -> list[surprise.Score]:
    """Returns how likely texts are: loss, bits per byte, each token's share.

    Args:
      texts: one document or several, see docs/scoring.md.
      top_k: how many of the most likely tokens to return for each token.

    Returns:
      A Score for each text, of one text too. It doesn't depend on the others.

    Raises:
      InputError: the model doesn't write text, or a text can't be scored.
    """
    texts = [texts] if isinstance(texts, str) else [*texts]
    return self.scorer.score(texts, top_k)

  def logits(self, text: str) -> np.ndarray:
    """Returns the logits of a document, LxV, float32.

    Row 0 predicts its first token, the last row the boundary that ends it.

    Raises:
      InputError: as `score`.
    """
    return self.scorer.logits(text)

  def hidden(self, text: str) -> np.ndarray:
    """Returns the outputs of the last block, LxD, float32; rows as in `logits`.

    Raises:
      InputError: as `score`.
    """
    return self.scorer.hidden(text)

  def forecast(
    self,
    frame: Any,
    *,
    future: Any = None,
    horizon: int | None = None,
    quantiles: Sequence[float] | None = None,
    samples: int = 0,
    seed: int = 0,
  ) -> Any:
    """Forecasts the readings after those of each series.

    Args:
      frame: a table as the run was trained on: a pandas DataFrame, long or
        wide, or another with `to_pandas`. Of a run without dates also an array,
        of one series or with one in each row, or a dict of arrays; of a run
        with data.targets they have a last axis of these.
      future: of a run with data.known, a table of these columns at the times
        after the readings; None: they are in rows of `frame` without a reading.
      horizon: readings; None: as many as in training.
      quantiles: ascending levels; None: those of training.
      samples: paths of readings to draw step by step from the distribution of
        head 'student_t' or 'negative_binomial'; `horizon` may then be longer
        than that of training. 0: none.
      seed: of the paths.

    Returns:
      A pandas DataFrame with a row for each reading: the series, the time and
      the quantiles, 'q0.1' and so on; of drawn paths their quantiles and they
      themselves, 'path1' and so on; of a run with data.targets the column
      'target', too.

    Raises:
      InputError: the model forecasts no series, the frame can't be read, or an
        option is out of its range.
    """
    import pandas as pd

    model, data = self.forecaster, self.bundle.config.data
    series = model.panel(frame, future).series
    sampling = forecast_lib.Sampling(samples, seed)
    made = model.forecasts(series, horizon, quantiles, sampling)
    return pd.DataFrame(forecast_rows.rows(made, data.id, data.time))

  def begin(self, history: Any, future: Any = None) -> series_streams.Stream:
    """Begins a stream: reads a series up to its end.

    Args:
      history: one series, as `frame` of `forecast`.
      future: as of `forecast`; what isn't known yet, `observe` takes.

    Returns:
      What `observe` takes; its size doesn't depend on the history's.

    Raises:
      InputError: as `forecast`, or there isn't exactly one series.
    """
    panel = self.forecaster.panel(history, future)
    if len(panel.series) != 1:
      errors.refuse(
        'history', f'{len(panel.series)} series', 'give one for each stream'
      )
    return self.forecaster.begin(panel.series[0])

  def begin_all(
    self, frame: Any, future: Any = None
  ) -> list[series_streams.Stream]:
    """Begins a stream for each series of a table, which are read together.

    Args:
      frame: as of `forecast`.
      future: as of `begin`.

    Raises:
      InputError: as `begin`.
    """
    panel = self.forecaster.panel(frame, future)
    return self.forecaster.begin_all(panel.series)

  def observe(
    self,
    state: series_streams.Stream,
    reading: readings_lib.Reading,
    *,
    known: covariates_lib.Given = covariates_lib.NONE,
    observed: covariates_lib.Given = covariates_lib.NONE,
    horizon: int | None = None,
    quantiles: Sequence[float] | None = None,
  ) -> tuple[series_streams.Stream, forecast_rows.Forecast]:
    """Takes the next reading of a stream.

    It equals, bit for bit, reading the series from its start.

    Args:
      state: of `begin` or `observe`; it stays valid.
      reading: the next one, of a run with data.targets a list of them; nan: it
        is missing.
      known: of a run with data.known, a number of each of these columns, or a
        list of numbers, at the times after those that the state knows of: as
        the horizon moves on by a reading, one more is needed.
      observed: of a run with data.observed, a number of each of these columns
        at the time of the reading; nan: it is missing.
      horizon: as of `forecast`.
      quantiles: as of `forecast`.

    Returns:
      (the new state, the Forecast after the reading).

    Raises:
      InputError: the reading isn't a finite number, a covariate is missing, or
        as `forecast`.
    """
    (state,), (forecast,) = self.observe_all(
      [state],
      [reading],
      known=[known],
      observed=[observed],
      horizon=horizon,
      quantiles=quantiles,
    )
    return state, forecast

  def observe_all(
    self,
    states: Sequence[series_streams.Stream],
    readings: Sequence[readings_lib.Reading],
    *,
    known: Sequence[covariates_lib.Given] | None = None,
    observed: Sequence[covariates_lib.Given] | None = None,
    horizon: int | None = None,
    quantiles: Sequence[float] | None = None,
  ) -> tuple[list[series_streams.Stream], list[forecast_rows.Forecast]]:
    """Takes the next reading of each of many streams, which run together.

    Each equals, bit for bit, what `observe` makes of it.

    Args:
      states: of the streams; they stay valid.
      readings: of each stream the next one; nan: it is missing.
      known: of each stream as of `observe`; None: nothing more.
      observed: the same.
      horizon: as of `forecast`.
      quantiles: as of `forecast`.

    Returns:
      (the new states, the Forecast after each reading).

    Raises:
      InputError: as `observe`, or there are more readings than streams or
        fewer.
    """
    model = self.forecaster
    for key, given in (
      ('readings', readings),
      ('known', known),
      ('observed', observed),
    ):
      if given is not None and len(states) != len(given):
        errors.refuse(
          key,
          f'{len(given):,} {key}',
          f'there are {len(states):,} states: give one for each',
        )
    states = model.observe_all(states, readings, known, observed)
    return states, model.forecast_all(states, horizon, quantiles)

  def anomalies(self, frame: Any, *, threshold: float | None = None) -> Any:
    """Scores how unlikely each reading is, by the forecast before it.

    Args:
      frame: as of `forecast`; each series is read from its start.
      threshold: of `anomaly_threshold`; None: no reading is flagged.

    Returns:
      A pandas DataFrame with a row for each reading: the series, the time, the
      reading, its `score` in nats, see inference/anomalies.py, and with a
      threshold whether it is an `anomaly`. The first readings have no score.

    Raises:
      InputError: the model forecasts no distribution, or as `forecast`.
    """
    import pandas as pd

    panel, data = self.detector.panel(frame), self.bundle.config.data
    found = self.detector.scores(panel.series)
    names = data.id, data.time, data.value
    return pd.DataFrame(anomalies_lib.rows(panel, found, threshold, names))

  def anomaly_threshold(
    self, frame: Any, *, false_alarms: float = anomalies_lib.FALSE_ALARMS
  ) -> float:
    """Returns the score above which a reading is an anomaly.

    Args:
      frame: readings without anomalies that the model wasn't trained on, as of
        `forecast`.
      false_alarms: the wanted rate, of readings like these.

    Raises:
      InputError: there are too few readings for the rate, or as `anomalies`.
    """
    found = self.detector.scores(self.detector.panel(frame).series)
    return anomalies_lib.threshold(found, false_alarms)

  def anomaly_score(
    self, state: series_streams.Stream, reading: float
  ) -> float:
    """Returns the score of the next reading of a stream, before `observe`.

    Args:
      state: of `begin` or `observe`.
      reading: the next one.

    Returns:
      The score; nan: the reading is missing, or too few came before it.

    Raises:
      InputError: the reading isn't a finite number, or as `anomalies`.
    """
    return self.detector.score(state, reading)

  def __repr__(self) -> str:
    config = self.bundle.config
    count = packed_weights.count(self.bundle.params)
    cells = ', '.join(config.model.pattern)
    return f'<rnn_jax Model: {config.task.name}, {cells}, {count:,} parameters>'

  @functools.cached_property
  def generator(self) -> generate_lib.Generator:
    """What writes its texts.

    Raises:
      InputError: the model doesn't write text.
    """
    return generate_lib.Generator.from_bundle(self.bundle, *self._formats)

  @functools.cached_property
  def scorer(self) -> score_lib.Scorer:
    """What scores texts.

    Raises:
      InputError: the model predicts classes.
    """
    return score_lib.Scorer(self.bundle)

  @functools.cached_property
  def forecaster(self) -> forecast_lib.Forecaster:
    """What forecasts series.

    Raises:
      InputError: the model forecasts none.
    """
    return forecast_lib.Forecaster(self.bundle)

  @functools.cached_property
  def detector(self) -> anomalies_lib.Detector:
    """What scores readings of series.

    Raises:
      InputError: the model forecasts no distribution.
    """
    return anomalies_lib.Detector(self.bundle)

  @functools.cached_property
  def _predictor(self):
    bundle = self.bundle
    return predict_lib.Predictor(
      bundle.config, bundle.tokenizer, bundle.params, bundle.temperature
    )

  def _inputs(self, inputs):
    """Returns a list of texts, of the pixels of images, or of series."""
    if self.bundle.config.task.series_label:
      if (
        isinstance(inputs, list)
        and inputs
        and (all(isinstance(each, labelled.Series) for each in inputs))
      ):
        return inputs
      options = self.bundle.config.data.table_options('')
      return labelled_tables.of_frame(inputs, options).series
    reads_images = self.bundle.config.task.reads_images
    if (
      isinstance(inputs, (str, bytes, os.PathLike))
      or not isinstance(inputs, Iterable)
      or isinstance(inputs, np.ndarray)
      and inputs.ndim < 4
      and reads_images
    ):
      inputs = [inputs]
    if not reads_images:
      return [*inputs]
    image = self.bundle.config.data.image
    return [
      read_image(each, image) if isinstance(each, (str, os.PathLike)) else each
      for each in inputs
    ]


def load(
  workdir: str | os.PathLike[str],
  checkpoint: str | int = 'best',
  weights: str = 'float32',
  batch_invariant: bool = False,
  states: str = 'float32',
) -> Model:
  """Opens a run, wherever its folder is now; its data needn't exist.

  Programs that it compiles are kept for the next process (compile_cache.py).

  Args:
    workdir: the run's folder.
    checkpoint: 'best', 'latest' or a step. If no checkpoint was evaluated, the
      best is the latest.
    weights: the format of the matrices in memory, one of generate.WEIGHTS:
      docs/compression.md. A file of launch.quantize is mapped; without one they
      are packed now.
    batch_invariant: whether texts are the same to the bit in any batch, as of
      generate.Generator.
    states: the format of matrix states while it writes text, 'float32' or
      'bfloat16': docs/compression.md.

  Raises:
    InputError: the folder has no run or no such checkpoint, `weights` or
      `states` is another word, or the model has no matrix states.
  """
  generate_lib.check_weights(weights)
  layers.check_states(states)
  compile_cache.keep()
  bundle = bundle_lib.read(workdir, checkpoint, weights=weights)
  return Model(bundle, weights, batch_invariant, states)


def read_image(path: str | os.PathLike[str], image: Any) -> np.ndarray:
  """Returns the pixels of an image file, HxWxC bytes.

  Args:
    path: of a PNG or JPEG file.
    image: section `data.image` of the config.

  Raises:
    InputError: the file can't be read as an image, or has another size than
      the model reads and data.image.resize is False.
  """
  try:
    codec.check_size(os.path.getsize(path), str(path))
    content = pathlib.Path(path).read_bytes()
  except OSError as error:
    raise errors.InputError(
      f'{path}: {error.strerror}: give the path of an image'
    ) from None
  return images_lib.decode(content, image, str(path))


def _options(max_new_tokens, settings, seed, stop):
  stop = (stop,) if isinstance(stop, str) else tuple(stop)
  return generate_lib.Options(
    max_new_tokens=max_new_tokens, sampling=settings, seed=seed, stop=stop
  )
