"""The client's side of a session that survives failures."""
