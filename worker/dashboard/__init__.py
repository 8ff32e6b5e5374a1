"""The dashboard: what a fleet does, to look at in a browser or to read as JSON, and what a person may do about it."""
