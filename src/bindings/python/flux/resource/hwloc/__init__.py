"""Reading hwloc XML, and R with the topology in it."""
