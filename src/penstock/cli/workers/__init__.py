"""`penstock workers`: what the registered workers do, orders for them, and the versions of their code."""
