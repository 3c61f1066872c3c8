"""The public names that belong to a run or to a client of runs; `poimen` exports them."""
