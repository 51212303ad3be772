"""The service beside the direct client of the same store."""
