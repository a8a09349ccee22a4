"""Predicts classes, labels or numbers: one function for all callers.

    predictor = Predictor(config, tokenizer, params)
    predictor.predict(['a film to remember'])[0].label

`load(...).predict`, launch.predict and launch.evaluate all call it, so that
they agree bit for bit. A prediction doesn't depend on the others beside it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.images import images as images_lib
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import classification as examples_lib
from rnn_jax.inference import classify
from rnn_jax.inference import decode
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.inference import series_outputs
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import calibration

# A text, the pixels HxWxC of an image, or a series.
Input = str | bytes | np.ndarray | labelled.Series


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The class of a text, an image or a series.

  Attributes:
    label: the name of the most likely class, or of the one that the model
      wrote; None if that isn't a class's name, or the class is too unlikely.
    probabilities: {class: p}, each p the shortest decimal that reads back as
      the same float32; {} of a model that writes its answer.
    written: what such a model wrote; None of others.
    labels: of a model that labels each character of a text, these labels, a
      character each; of one that labels each step of a series, a class each;
      None of others.
    value: of a model that predicts a number of a series, that; None of others.
    name: of a series; None of others.
  """

  label: str | None
  probabilities: dict[str, float]
  written: str | None = None
  labels: str | tuple[str, ...] | None = None
  value: float | None = None
  name: str | None = None


class Predictor:
  """A classifier, or a model of labels, that is ready to predict."""

  def __init__(
    self,
    config: config_lib.Config,
    tokenizer: tokenizer_lib.Tokenizer,
    params: Any,
    temperature: float | None = None,
  ) -> None:
    """Takes a run's model; parameters may be packed.

    Args:
      config: of the run.
      tokenizer: of the run.
      params: its parameters.
      temperature: of the probabilities; None: they aren't calibrated.

    Raises:
      InputError: it predicts neither classes nor labels nor numbers.
    """
    check_predicts(config)
    self._config = config
    self._classes = config.data.classes
    self._model = bundle_lib.make_task(config, tokenizer).model
    self._params = params
    self._temperature = 1.0 if temperature is None else temperature
    self._answer = self._classify
    if config.task.reads_images:
      return
    self._tokenizer = tokenizer
    if config.task.series_label:
      self._answer = {
        labelled.CLASS: self._classify,
        labelled.NUMBER: self._measure,
        labelled.STEPS: self._tag,
      }[config.task.series_label]
      return
    if config.task.labels_tokens:
      self._answer = self._label
      return
    self._framing = examples_lib.Framing(
      tokenizer, config.task, config.data, config.data.length
    )
    if config.task.writes_text:
      self._generator = generate.Generator(self._model, params, tokenizer)
      self._answer = self._write

  def predict(
    self, inputs: Sequence[Input], threshold: float = 0.0
  ) -> list[Prediction]:
    """Returns the Prediction of each text, or of each image.

    A text too long for a classifier loses its end, as in training.

    Args:
      inputs: texts or images.
      threshold: a class of a lower probability is no label.

    Raises:
      InputError: an input is of the wrong kind, no UTF-8 can be made of it, the
        vocabulary or learned positions don't cover a text to label, or as
        `check_threshold`.
    """
    check_threshold(self._config, threshold)
    answers = self._answer(inputs)
    if self._config.task.series_label:
      answers = [
        dataclasses.replace(answer, name=series.name)
        for answer, series in zip(answers, inputs, strict=True)
      ]
    if not threshold:
      return answers
    return [_abstained(each, threshold) for each in answers]

  def logits(self, inputs: Sequence[Input]) -> np.ndarray:
    """Returns the logits of the classes for each input, NxC, float32.

    Raises:
      InputError: as `predict`.
    """
    read = self._read(inputs)
    if self._config.task.series_label:
      outputs = series_outputs.outputs(self._model, self._params, read)
      return series_outputs.last(outputs, len(self._classes))
    return classify.logits(self._model, self._params, read)

  def embed(self, inputs: Sequence[Input]) -> np.ndarray:
    """Returns the pooled features of each input, NxD, float32.

    Raises:
      InputError: as `predict`.
    """
    read = self._read(inputs)
    if self._config.task.series_label:
      made = series_outputs.features(self._model, self._params, read)
      return series_outputs.last(made, 0)
    return classify.features(self._model, self._params, read)

  def _classify(self, inputs):
    logits_NxC = self.logits(inputs)
    p_NxC = classify.calibrated(logits_NxC, self._temperature)
    return [
      Prediction(
        self._classes[int(np.argmax(logits_C))],
        dict(zip(self._classes, map(shortest, p_C), strict=True)),
      )
      for logits_C, p_C in zip(logits_NxC, p_NxC, strict=True)
    ]

  def _write(self, texts):
    words, tokenizer = self._framing.answers, self._generator.tokenizer
    # A lossy tokenizer writes its own form of a name.
    names = {tokenizer.decode(word): n for n, word in enumerate(words)}
    rows: list[Any] = [None] * len(texts)
    questions = self._read(texts)
    # The generator pads by itself.
    for batch in classify.batches(questions, decode.padded_length):
      options = generate.Options(
        max_new_tokens=max(map(len, words)),
        sampling=sampling.Sampling(0.0),
        batch_size=len(batch.texts),
      )
      completions = self._generator.generate(batch.texts, options).completions
      for n, written in zip(batch.numbers, completions, strict=False):
        number = names.get(written.text)
        valid = number is not None and written.reason == 'boundary'
        label = self._classes[number] if valid else None
        rows[n] = Prediction(label, {}, written.text)
    return rows

  def _label(self, texts):
    boundary = [self._tokenizer.boundary]
    encode = self._tokenizer.encode
    rows = [np.append(boundary, encode(_text(text))) for text in texts]
    longest = self._model.longest
    for n, row in enumerate(rows):
      if longest and len(row) > longest:
        raise errors.InputError(
          f'text {n} has {len(row) - 1} characters, and the model has learned '
          f'positions for {longest - 1}: shorten it'
        )
    # The ids after these are no characters.
    labels = self._tokenizer.unknown
    ids = classify.token_labels(self._model, self._params, rows, labels)
    decode = self._tokenizer.decode
    return [Prediction(None, {}, labels=decode(each[1:])) for each in ids]

  def _measure(self, inputs):
    outputs = series_outputs.outputs(
      self._model, self._params, self._read(inputs)
    )
    scale = labelled_examples.target_scale(self._tokenizer, self._config.data)
    return [
      Prediction(None, {}, value=float(scale.invert(each[-1, 0])))
      for each in outputs
    ]

  def _tag(self, inputs):
    outputs = series_outputs.outputs(
      self._model, self._params, self._read(inputs)
    )
    return [
      Prediction(None, {}, labels=tuple(self._classes[n] for n in each))
      for each in (x.argmax(-1) for x in outputs)
    ]

  def _read(self, inputs):
    """Returns what the model reads of texts, images or series."""
    if self._config.task.series_label:
      return series_outputs.read(inputs, self._tokenizer, self._config.data)
    if not self._config.task.reads_images:
      return [self._framing.question(_text(text)) for text in inputs]
    wanted = images_lib.shape(self._config.data.image)
    for n, image in enumerate(inputs):
      given = getattr(image, 'dtype', None), np.shape(image)
      if given != (np.uint8, wanted):
        raise errors.InputError(
          f'image {n} is {_described(image)}: this model reads arrays of '
          f'uint8 {list(wanted)}, height x width x channels'
        )
    return inputs


def check_predicts(config: config_lib.Config) -> None:
  """Checks that a config's model predicts classes, labels or numbers.

  Raises:
    InputError: it doesn't; the message says what to call instead.
  """
  if config.task.series_label:
    return
  if config.task.reads_series:
    errors.refuse(
      'task.name', config.task.name, 'its model forecasts: use launch.forecast'
    )
  if not (config.task.classifies or config.task.labels_tokens):
    does = (
      'writes text, no class: call generate, or use launch.generate'
      if config.task.writes_text
      else 'predicts neither a class nor labels: use launch.evaluate'
    )
    errors.refuse('task.name', config.task.name, f'its model {does}')


def check_threshold(config: config_lib.Config, threshold: float) -> None:
  """Checks a threshold of probabilities.

  Raises:
    InputError: it isn't from 0 to 1, or the model has no probabilities.
  """
  if not isinstance(threshold, (int, float)) or not 0 <= threshold <= 1:
    errors.refuse('threshold', threshold, 'give a probability, from 0 to 1')
  if threshold and not calibration.has_probabilities(config.task):
    errors.refuse(
      'threshold', threshold, 'the model has no probabilities: leave it out'
    )


def _abstained(prediction, threshold):
  """Returns a prediction without the label of a class that is too unlikely."""
  if max(prediction.probabilities.values()) >= threshold:
    return prediction
  return dataclasses.replace(prediction, label=None)


def shortest(p: np.float32) -> float:
  """Returns the shortest decimal that reads back as the same float32."""
  return float(str(np.float32(p)))


def _text(text):
  """Returns a text, or raises InputError."""
  if not isinstance(text, (str, bytes)):
    raise errors.InputError(
      f'{_described(text)} is not a text: this model reads strings'
    )
  try:
    return text if isinstance(text, bytes) else text.encode()
  except UnicodeEncodeError:
    raise errors.InputError(
      f'text {ascii(text[:60])} has an unpaired surrogate: fix it'
    ) from None


def _described(value):
  if isinstance(value, np.ndarray):
    return f'{value.dtype} {list(value.shape)}'
  return f'{type(value).__name__} {value!r:.60}'
