"""Pages: a file for each noun, with what it shows and what it changes. ``ROUTES`` says where."""
