"""Min-cost flow networks and their files."""
