"""Word of endings to addresses that tenants name: signed, through the queue itself, at least once."""
