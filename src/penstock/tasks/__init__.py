"""How a function becomes a task: registration, arguments, the context it gets, the signals it raises."""
