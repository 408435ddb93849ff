"""A long run of everything at once, with processes being killed, that ends with a count of what was lost.

`story` is the place to begin: one directory and what happens to it, step by step.
`edits` changes the files, `manifest` reads what is on disk and what a snapshot must hold of it, `judge` compares
that with the store, `workers` are the processes that use shadowsnap and are killed, `chaos` is what goes on
beside the stories in the same store, and `main` runs it all and adds it up.
"""
