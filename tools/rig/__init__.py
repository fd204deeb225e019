"""The replay rig: recorded replies played through the real engine on a virtual clock; see docs/guides/replay.md."""
