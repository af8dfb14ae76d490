"""What pods are told."""
