"""The command denylist's built-in rules, one family a file. They can be added to, never taken away."""
