"""The demo: real worker processes, one of them killed, and a proof that no job was lost."""
