"""Kills anywhere, at every commit and at any moment: who watches the log, what is lived through, who judges it."""
