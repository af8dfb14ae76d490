"""Run times of pods, learnt from those that have ended."""
