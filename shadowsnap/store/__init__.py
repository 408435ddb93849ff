"""The store on disk: one bare git repository and small JSON files for every project."""
