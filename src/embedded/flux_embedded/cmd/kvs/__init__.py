"""``flux kvs``: the instance's key-value store."""
