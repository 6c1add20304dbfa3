"""Figures 5.2 to 5.7 of the thesis and the numbers of its text, computed anew.

python -m benchmarks.paper_figures [--output FOLDER] [--only 5.4 5.6]
"""
