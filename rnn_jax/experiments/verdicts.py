"""Sentences that the figures of a comparison support.

Variants are ranked by the cost of a step relative to the baseline of the grid.
The best is named among those that keep the baseline's quality: their main score
is worse by at most TOLERANCE of it.
"""

from typing import Any

from rnn_jax.experiments import costs as costs_lib

TOLERANCE = 0.01


def ranking(summary: dict[str, Any]) -> list[str]:
  """Returns sentences on memory and time; none without a baseline."""
  baseline = summary['baseline']
  if not baseline or len(_scored(summary)) < 2:
    return []
  lines = []
  for keys, what in ((costs_lib.MEMORY, 'memory'), (costs_lib.TIME, 'time')):
    key = costs_lib.first(keys, summary['costs'])
    lines += _ranked(summary, key, what)
  return lines + _losers(summary)


def keeps_quality(summary: dict[str, Any], name: str) -> bool:
  """Returns if a variant's main score is within TOLERANCE of the baseline's."""
  metric = summary['metrics'][0]
  ratio = summary['variants'][name]['ratios'].get(metric['key'])
  if ratio is None:
    return False
  worse = ratio - 1 if metric['better'] == 'lower' else 1 - ratio
  return worse <= TOLERANCE


def _scored(summary):
  key = summary['metrics'][0]['key']
  variants = summary['variants'].items()
  return [name for name, variant in variants if key in variant['ratios']]


def _ranked(summary, key, what):
  ratios = {
    name: summary['variants'][name]['ratios'][key]
    for name in _scored(summary)
    if key in summary['variants'][name]['ratios']
  }
  if len(ratios) < 2:
    return []
  order = sorted(ratios, key=ratios.get)
  listed = ', '.join(f'{name} {ratios[name]:.2f}' for name in order)
  lines = [f'{what.capitalize()} of a step, relative to baseline: {listed}.']
  best = next((name for name in order if keeps_quality(summary, name)), None)
  if best is not None and ratios[best] < 1:
    label = summary['metrics'][0]['label']
    lines.append(
      f'Within {TOLERANCE:.0%} of the {label} of `{summary["baseline"]}`, '
      f'`{best}` takes the least {what}: {1 - ratios[best]:.1%} less.'
    )
  return lines


def _losers(summary):
  """Returns who loses quality, and by how much."""
  metric = summary['metrics'][0]
  lost = [
    f'{name} ({summary["variants"][name]["ratios"][metric["key"]]:.3f} times)'
    for name in _scored(summary)
    if not keeps_quality(summary, name)
  ]
  if not lost:
    return []
  return [f'Worse in {metric["label"]} by more than that: {", ".join(lost)}.']
