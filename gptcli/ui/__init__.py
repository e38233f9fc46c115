"""What the terminal shows: notes, tables, progress, errors. rich lives here alone."""
