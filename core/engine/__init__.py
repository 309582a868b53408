"""The code that computes: NumPy and torch engines. Nothing outside imports torch."""
