"""The append-only record: one port, its backends, and the door through which everything is appended."""
