"""Content-addressed bodies, named by the records of the log."""
