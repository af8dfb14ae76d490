"""One machine with a swinging load: its simulation, the controllers to compare with, the report."""
