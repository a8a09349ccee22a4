"""The loops of a traced program."""


def lengths(jaxpr):
  """The turns of each scan, a custom derivative's included, in order."""
  found = []
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'scan':
      found.append(equation.params['length'])
    elif 'call_jaxpr' in equation.params:
      found += lengths(equation.params['call_jaxpr'])
  return found
