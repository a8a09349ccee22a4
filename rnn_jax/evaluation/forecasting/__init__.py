"""Scores forecasts of series, and the simple forecasters to compare with."""
