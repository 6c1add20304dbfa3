"""What people are asked: how the rows that they have become the values of a question.

NumPy and Arrow, and no Beam, so that a device can do what a worker does.
"""
