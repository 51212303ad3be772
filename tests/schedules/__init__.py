"""Schedules, from the ticker to the app."""
