"""What agents run before a tool."""
