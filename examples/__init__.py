"""Glassloop's examples."""
