"""Tasks that networks are trained on, one a file."""
