"""Policies for rounds at cluster scale, one file each."""
