"""One database file and what lies beside it: how it is opened, locked, anchored, settled and checked."""
