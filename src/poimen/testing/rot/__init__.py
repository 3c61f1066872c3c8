"""Bit rot and edits behind the log's back: each is found, or shown to mean nothing."""
