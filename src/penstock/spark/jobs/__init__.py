"""The tables `jobs` and `dlq`, read in batch."""
