"""The page about a comparison: one HTML file with charts in SVG, drawn here."""
