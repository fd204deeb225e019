"""Prove on the user's own pair that speculation changes nothing."""
