"""What the scheduling classes of this machine do for a critical periodic task, measured."""
