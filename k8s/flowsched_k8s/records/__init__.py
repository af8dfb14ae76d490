"""What is kept and exported of rounds and of the state."""
