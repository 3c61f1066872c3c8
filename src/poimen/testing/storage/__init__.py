"""What reaches the disk, seen from inside (a VFS), from outside (a tracer), and commit by commit."""
