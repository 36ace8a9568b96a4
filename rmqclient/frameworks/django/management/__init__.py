"""Management: what Django looks for here."""
