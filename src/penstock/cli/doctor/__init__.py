"""`penstock doctor`: one module per subject of its checks; each returns `Check` values."""
