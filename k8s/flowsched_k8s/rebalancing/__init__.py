"""Running pods that are moved to other nodes."""
