"""The bodies of requests with series of numbers; see schemas.py.

A missing reading is null; of a run with several targets a reading is a list of
numbers. Times are text, or whole numbers of a run without dates.
"""

import re
from typing import Annotated
from typing import Any
from typing import ClassVar

import numpy as np
import pydantic

from rnn_jax.serving import stream_times
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import schemas

ID = re.compile(r'[A-Za-z0-9._~:-]{1,128}')  # of a stream
SERIES = 1024  # of a request

Time = Annotated[str, pydantic.Field(max_length=64)] | int
Id = Annotated[str, pydantic.Field(pattern=f'^{ID.pattern}$')]
Name = Annotated[str, pydantic.Field(min_length=1, max_length=1024)]
Numbers = schemas.Real | None | list[schemas.Real | None]
Values = Annotated[list[Numbers], pydantic.Field(min_length=1)]
Times = Annotated[list[Time], pydantic.Field(min_length=1)]


class Asking(schemas.Asked):
  """What is asked of a forecast."""

  horizon: Annotated[int, pydantic.Field(ge=1)] | None = None
  quantiles: (
    Annotated[list[schemas.Real], pydantic.Field(min_length=1, max_length=99)]
    | None
  ) = None


class Covariates(schemas.Object):
  """What comes with readings, by the columns of the run."""

  known: dict[str, Numbers] | None = None
  known_times: Times | None = None  # of these; None: those of the readings
  observed: dict[str, Numbers] | None = None

  @pydantic.model_validator(mode='after')
  def _check_known(self):
    if self.known_times is not None and not self.known:
      raise http_errors.bad_request(
        'known_times goes together with known: give both', 'known_times'
      )
    return self

  def besides(self, horizon: int) -> stream_times.Besides:
    """Returns it for a forecast of `horizon` readings."""
    return stream_times.Besides(
      self.known or {},
      self.known_times,
      self.observed or {},
      horizon=horizon,
    )


class History(Covariates):
  """The readings so far, and their times."""

  readings: Values
  times: Times | None = None
  static: dict[str, schemas.Real | str | None] | None = None

  def besides(self, horizon: int) -> stream_times.Besides:
    return super().besides(horizon)._replace(static=self.static or {})


class Series(History):
  """A series by its name, whose scale the run may know."""

  id: Name


class Forecast(Asking):
  """Forecasts the readings after those of each series."""

  series: Annotated[
    list[Series], pydantic.Field(min_length=1, max_length=SERIES)
  ]


class NewStream(Asking, History):
  """Begins a stream with the readings so far, in place of an old one."""

  series: Name | None = None  # whose scale the run may know; None: the id


class Readings(Asking, Covariates):
  """Takes the next reading of a stream, or several; returns the forecast."""

  nulls: ClassVar[tuple[str, ...]] = ('reading',)

  reading: Numbers = None
  time: Time | None = None
  readings: Values | None = None
  times: Times | None = None

  @pydantic.model_validator(mode='after')
  def _check_one(self):
    given = self.model_fields_set
    if ('reading' in given) == ('readings' in given):
      raise http_errors.bad_request(
        'give a reading, which may be null, or several readings', 'reading'
      )
    for one, other in (('time', 'reading'), ('times', 'readings')):
      if one in given and other not in given:
        raise http_errors.bad_request(
          f'{one} goes together with {other}: give both', one
        )
    return self

  @property
  def each(self) -> tuple[list[Any] | None, list[Any]]:
    """The times, if they are given, and the readings."""
    if 'reading' in self.model_fields_set:
      times = None if self.time is None else [self.time]
      return times, numbers([self.reading])
    return self.times, numbers(self.readings)


class NextReadings(Asking):
  """Takes the next reading of each of many streams; returns their forecasts."""

  readings: Annotated[
    dict[Id, Numbers], pydantic.Field(min_length=1, max_length=SERIES)
  ]
  time: Time | None = None  # of all of them


def numbers(readings: Any) -> list[Any]:
  """Returns readings as numbers, or lists of them; null is NaN."""
  return [
    numbers(x) if isinstance(x, list) else np.nan if x is None else float(x)
    for x in readings
  ]
