"""Figures: what poimen costs, with the machine's raw floor beside every one."""
