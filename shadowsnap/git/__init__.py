"""The only room that runs git or knows its file formats."""
