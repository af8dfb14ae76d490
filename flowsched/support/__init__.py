"""Small things that every package needs."""
