"""Secrets stay out of the log: what one looks like, what stands for one, which rules are in force."""
