"""What TreePool adds to a pool: nodes as trees of places."""
