"""Find out what speculation gains on this machine with this pair, and why not more."""
