"""Where jobs live: one protocol, several stores."""
