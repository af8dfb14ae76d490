"""What flowsched answers over HTTP."""
