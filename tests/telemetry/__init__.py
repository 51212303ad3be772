"""What is written about jobs."""
