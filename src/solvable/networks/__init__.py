"""Real networks beside the theory."""
