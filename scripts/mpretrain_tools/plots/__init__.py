"""Figures of runs and of the matrix-fitting diagnostic. matplotlib is imported when something is
drawn.
"""
