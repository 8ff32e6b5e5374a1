"""The operator's rules: read from TOML, checked against their own examples, judged with every call."""
