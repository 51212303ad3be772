"""What type checkers see."""
