"""Readers of rows: JSON Lines, JSON arrays, CSV and Parquet, of which each row is a document."""
