"""What authors declare: tools, models, steps, workflows, verifiers, domain states; and what is kept of it.

Read `decorators.py` (what an author writes), `specs.py` (what is kept), `calling.py` (what a call does),
then `making/` (how the one becomes the other) and `values.py` (how arguments and results are stored).
"""
