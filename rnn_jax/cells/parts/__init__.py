"""What several cells are made of; no cells themselves."""
