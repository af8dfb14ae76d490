"""Groups of pods that start together."""
