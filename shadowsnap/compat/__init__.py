"""Drop-in faces of other checkpoint systems: their names and answers, this package's engine."""
