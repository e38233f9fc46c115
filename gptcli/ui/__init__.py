"""Terminal output: notes, tables, progress, errors. Only this package imports rich."""
