"""Requests out of the service to addresses that strangers named, guarded against reaching inwards."""
