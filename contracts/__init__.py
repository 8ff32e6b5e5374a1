"""What travels between agents, workers, orchestrators and dashboards. Imports nothing of `worker`."""
