"""Why a job is where it is, in plain words, for the command line and the service."""
