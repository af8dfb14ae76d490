"""Records of rounds: made, checked, written and read."""
