"""What a crash left behind."""
