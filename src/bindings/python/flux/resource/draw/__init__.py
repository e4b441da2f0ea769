"""Pictures of nodes, as text and SVG."""
