"""What runs amount to: curves, tables, figures and the report page."""
