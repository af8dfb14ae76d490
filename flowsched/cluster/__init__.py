"""What one round may know and what it decides, and the state that events change."""
