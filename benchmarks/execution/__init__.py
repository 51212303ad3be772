"""Where handlers run, measured on one server: in the worker, in kept processes, in a process per job."""
