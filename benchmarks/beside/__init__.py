"""A store beside its peers: the same jobs, the same handlers and the same clock for every side."""
