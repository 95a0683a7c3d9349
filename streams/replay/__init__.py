"""Recording topics to files, replaying them, and sending dead letters again."""
