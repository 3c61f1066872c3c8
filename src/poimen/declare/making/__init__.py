"""From a function as it is written to a declared name.

`functions.py` reads, `candidate.py` refuses, `dressing.py` makes the plain function that stands in, and
`building.py` does it all for one decorator. Only `poimen.declare.decorators` uses this package.
"""
