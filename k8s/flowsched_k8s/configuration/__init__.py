"""What operators configure."""
