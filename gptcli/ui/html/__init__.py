"""Reports as HTML pages: each is one file that loads nothing from elsewhere."""
