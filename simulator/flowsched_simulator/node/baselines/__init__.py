"""Controllers to compare with, each a published design, or the plainest rule there is."""
