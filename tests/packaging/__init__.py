"""Tries the wheel and the sdist as a user would install them."""
