"""Base classes."""
