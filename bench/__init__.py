"""Measurements: the engine side by side with its peers, and corpora of hostile input."""
