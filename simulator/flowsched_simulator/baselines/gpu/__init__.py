"""Published rules that place one task at a time where GPUs are shared."""
