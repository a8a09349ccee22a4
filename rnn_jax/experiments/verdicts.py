"""Sentences that the figures of a comparison support.

Variants are ranked by their memory and time relative to the baseline of the
grid; those that don't differ from it by more than noise (differences.py) have
no rank. The best is named among those that keep the baseline's quality: their
main score is worse by at most TOLERANCE of it.
"""

from typing import Any

from rnn_jax.experiments import costs as costs_lib
from rnn_jax.experiments import differences

TOLERANCE = 0.01


def ranking(summary: dict[str, Any]) -> list[str]:
  """Returns sentences on memory and time; none without a baseline."""
  baseline = summary['baseline']
  if not baseline or len(_scored(summary)) < 2:
    return []
  lines = []
  for keys, what in costs_lib.RANKED:
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
  baseline, variants = summary['baseline'], summary['variants']
  figures = differences.with_means(key, variants, _scored(summary))
  if len(figures) < 2 or not figures.get(baseline, {'mean': 0})['mean']:
    return []
  ratios = {n: variants[n]['ratios'][key] for n in figures}
  order = sorted(ratios, key=lambda name: ratios[name])
  same = differences.level(key, baseline, figures)
  title = f'{costs_lib.TITLES[key]}, relative to {baseline}'
  if len(same) == len(order):
    return [f'{title}: no difference seen.']
  lines = [f'{title}: {_listed(ratios, order, same)}.']
  kept = {n: figures[n] for n in order if keeps_quality(summary, n)}
  best = next(iter(kept), baseline)
  if ratios[best] < 1 and best not in same:
    lines.append(
      _least(summary, what, ratios, differences.level(key, best, kept))
    )
  return lines


def _least(summary, what, ratios, names):
  """Returns the sentence on the variants that take the least of something."""
  listed = ' and '.join(f'`{name}`' for name in names)
  take = 'takes' if len(names) == 1 else 'take'
  return (
    f'Within {TOLERANCE:.0%} of the {summary["metrics"][0]["label"]} of '
    f'`{summary["baseline"]}`, {listed} {take} the least {what}: '
    f'{1 - max(ratios[name] for name in names):.1%} less.'
  )


def _listed(ratios, order, same):
  """Returns the variants with their ratios; those like the baseline last."""
  ranked = ', '.join(f'{n} {ratios[n]:.2f}' for n in order if n not in same)
  if len(same) == 1:  # the baseline
    return ranked
  others = ', '.join(f'{n} {ratios[n]:.2f}' for n in order if n in same)
  return f'{ranked}; no difference seen between {others}'


def _losers(summary):
  """Returns who loses quality, and by how much."""
  metric, baseline = summary['metrics'][0], summary['baseline']
  key, variants = metric['key'], summary['variants']
  figures = differences.with_means(key, variants, _scored(summary))
  lost = [
    f'{name} ({variants[name]["ratios"][key]:.3f} times)'
    for name in figures
    if not keeps_quality(summary, name)
    and differences.seen(key, figures[baseline], figures[name])
  ]
  if not lost:
    return []
  return [f'Worse in {metric["label"]} by more than that: {", ".join(lost)}.']
