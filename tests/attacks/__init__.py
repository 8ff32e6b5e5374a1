"""What a command may try against the host, its worker and its neighbours, and what each wall does about it."""
