"""The only concurrent code: runs are driven here, and clients reach them from here."""
