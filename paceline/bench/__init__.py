"""Measure this machine: `paceline bench`.

Every suite states the floor, measures its baseline in the same run, and gives medians with their spread.
"""
