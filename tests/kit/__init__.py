"""What the tests stand on: servers, and arguments that live in a test's event loop."""
