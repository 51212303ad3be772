"""Every byte that stands in the server or goes there: records, events, arguments and answers."""
