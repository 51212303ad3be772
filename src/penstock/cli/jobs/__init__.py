"""Commands about jobs: enqueue, list, change, explain; dead letters and flows."""
