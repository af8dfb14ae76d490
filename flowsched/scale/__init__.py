"""Where cost models of other packages find what they are written with, by the names of before."""
