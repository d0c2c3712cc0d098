"""Text for corpora out of packages, and token shards of C4."""
