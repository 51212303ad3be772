"""The shapes of requests and answers: what stands on the wire, and how it becomes what the queue knows."""
