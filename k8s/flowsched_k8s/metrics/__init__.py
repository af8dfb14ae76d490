"""What flowsched measures of itself."""
