"""One way to draw examples for everybody: the same ones in every run, however slow the machine."""

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
