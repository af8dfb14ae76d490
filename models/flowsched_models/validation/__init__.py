"""Profiles scored against measured runs."""

from flowsched_models.validation.validation import Question, Validation, validate

__all__ = ["Question", "Validation", "validate"]
