"""The only door to the world: the guard and the ladder."""
