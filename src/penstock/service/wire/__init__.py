"""The JSON models of requests and responses, and their conversion from and to the records of the queue."""
