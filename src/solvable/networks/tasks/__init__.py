"""Tasks that networks are trained on, one per file."""
