"""What runs amount to: curves and tables."""
