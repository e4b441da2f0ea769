"""What the pools are made of."""
