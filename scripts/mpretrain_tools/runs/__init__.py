"""What a run recorded: read, compared with others, trained by several ranks."""
