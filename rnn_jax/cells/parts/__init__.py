"""Code that several cells share; not cells themselves."""
