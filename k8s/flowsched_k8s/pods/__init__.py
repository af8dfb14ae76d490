"""What pods say of themselves, and where that lets them run."""
