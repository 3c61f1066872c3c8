"""Processes that are made to die, one by one or by the hundred, and what is found after them."""
