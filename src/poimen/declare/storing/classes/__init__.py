"""Codecs of classes of users: those with named fields, and pydantic models.

They are handed the codecs of the fields; `annotations` decides which class is which. Nothing here knows how an
annotation is read.
"""
