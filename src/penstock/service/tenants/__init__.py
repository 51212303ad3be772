"""What tenants may use, what they did use, and whose turn it is among them."""
