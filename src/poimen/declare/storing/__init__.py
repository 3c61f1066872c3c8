"""How values become bytes: one codec per annotation, built once and kept.

`poimen.declare.values` is the face of this package; nothing else imports its modules. Read
`canonical.py` (the bytes), `codec.py` (what a codec is), then `annotations.py` (which codec an
annotation gets).
"""
