"""A long run of everything at once, with processes being killed, that ends with a count of what was lost."""
